"""npm packages for tests. A lock file pins them; they are fetched once and kept for the user."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.private_cache import REAL
from tests.real.packages import NotHere, alone
from twostroke.assembly.settings.env import read_machine

LIMIT_S = 300


def installed(source: Path) -> Path:
    """Returns a folder with the files of `source` and the packages that its lock file names. Raises NotHere."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotHere(f"npm packages of {source.name}: {program} is not there.")
    digest = hashlib.sha256((source / "package-lock.json").read_bytes()).hexdigest()[:16]
    place = read_machine().cache_folder / REAL / f"npm-{digest}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with alone(place.with_suffix(".lock")):
        if not place.is_dir():
            _install(source, place)
    for script in source.glob("*.mjs"):
        shutil.copy(script, place)
    return place


def _install(source: Path, place: Path) -> None:
    """Installs in a neighbouring folder and then renames it, so that the final folder is always whole. Runs no script
    of a package."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="npm.partial-") as made:
        folder = Path(made) / "files"
        folder.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotHere(f"npm packages of {source.name}: npm did not end ({type(error).__name__}).") from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
            raise NotHere(f"npm packages of {source.name}: npm ci failed: {said[:160]}")
        folder.rename(place)
