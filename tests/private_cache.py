"""Each process that runs tests has a cache folder of its own.

What one test keeps (the calibration of this machine, an alias) may change what another one sees. For example, a kept
calibration makes the server refuse requests that it would otherwise hold. The speed of the machine decides which test
files one process runs, and in which order. So a process has a cache that is empty at first. After each test file it
removes everything except files that are named by a digest of their content. Compiled files and published weights are
shared with the user's cache, and tiny checkpoints among the processes of a run, because their names contain everything
on which they depend.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from twostroke.assembly.settings.env import read_machine

VARIABLE = "XDG_CACHE_HOME"
CONFIG = "XDG_CONFIG_HOME"
OWN, OBJECTS, REAL, COMPILER = "twostroke", "objects", "real-weights", "zig"
BY_CONTENT = {OBJECTS, REAL, "packed", "vocabularies", "gguf"}
"""Files that are named by their content. They save time and change no answer."""
RUN_FOLDER = "TWOSTROKE_TESTS_OF_RUN"
"""The variable with the folder that all processes of a run share. Tiny checkpoints are made once for all of them."""


def enter() -> Path:
    """Makes an empty cache, which this process and those that it starts use. Returns the folder to remove."""
    users = read_machine().cache_folder
    folder = Path(tempfile.mkdtemp(prefix="twostroke-tests-"))
    (folder / OWN).mkdir()
    shared = ((users / name, folder / OWN / name) for name in (OBJECTS, REAL))
    for kept, link in (*shared, (users.parent / COMPILER, folder / COMPILER)):
        with contextlib.suppress(OSError):  # where the user's cache cannot be written, everything is compiled anew
            kept.mkdir(parents=True, exist_ok=True)
            link.symlink_to(kept.resolve())
    os.environ[VARIABLE] = str(folder)
    os.environ[CONFIG] = str(folder / "config")  # no alias of the user changes what a name means to a test
    if RUN_FOLDER not in os.environ:  # this process starts the others
        (folder / "of-run").mkdir()
        os.environ[RUN_FOLDER] = str(folder / "of-run")
    return folder


def forget(folder: Path) -> None:
    """Removes the results of one test file that may decide something in another one."""
    kept = [path for path in (folder / OWN).iterdir() if path.name not in BY_CONTENT] if (folder / OWN).is_dir() else []
    for path in [*kept, folder / "config"]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def leave(folder: Path) -> None:
    """Removes it, but not the targets of its links."""
    if Path(os.environ.get(RUN_FOLDER, "")).parent == folder:
        del os.environ[RUN_FOLDER]
    shutil.rmtree(folder, ignore_errors=True)
