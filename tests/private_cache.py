"""A cache folder of its own for each process that runs tests.

What one test keeps (the calibration of this machine, an alias) may change what another one sees: a kept calibration
makes the server refuse requests that it would hold otherwise. Which files of tests one process runs, and in which
order, depends on how fast the machine is. So a process has a cache that begins empty, and after each file of tests it
forgets all but what is named by a digest of its content. Compiled files, published weights and what judges made are
shared with the user's cache: their names hold all that they depend on.
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
JUDGED = "judged"
"""What judges made: tests/kept.py."""
BY_CONTENT = {OBJECTS, REAL, JUDGED, "packed", "vocabularies", "gguf"}
"""Files that are named by their content. They save time and change no answer."""
RUN_FOLDER = "TWOSTROKE_TESTS_OF_RUN"
"""Names the folder that all processes of a run share: in a daily run, what judges make is made once for all of them."""


def enter() -> Path:
    """Makes an empty cache, which this process and those that it starts use. Returns the folder to remove."""
    users = read_machine().cache_folder
    folder = Path(tempfile.mkdtemp(prefix="twostroke-tests-"))
    (folder / OWN).mkdir()
    shared = ((users / name, folder / OWN / name) for name in (OBJECTS, REAL, JUDGED))
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
