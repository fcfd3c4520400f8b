"""A peer's virtual environment: its path, whether it is installed, and its installation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from twostroke.lab.bench.peers.peer import Peer
from twostroke.types.errors import ConfigError

READY = "ready"


def python_of(folder: Path, peer: Peer) -> Path | None:
    """Returns the peer's interpreter, or None where the installation did not finish."""
    python = folder / peer.name / "bin" / "python"
    return python if python.exists() and (folder / peer.name / READY).exists() else None


def install(folder: Path, peer: Peer, variables: Mapping[str, str], note: Callable[[str], None]) -> Path:
    """Makes the environment, where no finished one exists. Returns its interpreter. Raises ConfigError.

    variables: the environment of the installer, to which the peer's own are added.
    """
    found = python_of(folder, peer)
    if found is not None:
        return found
    home = folder / peer.name
    shutil.rmtree(home, ignore_errors=True)
    note(f"{peer.title}: making {home}")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    # The cache is off, because it may contain a wheel that was built with other flags.
    steps = [["install", "--quiet", "--no-cache-dir", "--disable-pip-version-check", *peer.requirements]]
    if peer.unwanted:
        steps.append(["uninstall", "--quiet", "--yes", *peer.unwanted])
    for step in steps:
        note(f"{peer.title}: pip {' '.join(step)} (minutes)")
        done = subprocess.run(
            [str(python), "-m", "pip", *step],
            env={**variables, **peer.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ConfigError(
                f"{peer.title} could not be installed.",
                why=done.stderr.strip().splitlines()[-1]
                if done.stderr.strip()
                else f"pip ended with {done.returncode}",
                fix=f"Try by hand: {python} -m pip {' '.join(step)}",
            )
    (home / READY).write_text(" ".join(peer.requirements) + "\n")
    return python


def own_python() -> Path:
    """Returns the interpreter that runs Twostroke."""
    return Path(sys.executable)
