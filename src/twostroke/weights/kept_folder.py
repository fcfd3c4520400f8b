"""A folder with a model's files in another form: made once and kept, or made for this process alone."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

Members = Mapping[str, str | Path]
"""The files of such a folder: name -> the file's text, or the path of an existing file to which a link is made. A name
may have one subfolder before it ("1_Pooling/config.json")."""


def make_folder(parent: Path | None, name: str, proof: str, members: Callable[[], Members]) -> Path:
    """Returns the folder `parent`/`name`. It is made of `members` if its file `proof` does not exist yet.

    Where parent is None or cannot be written (a full or read-only disk), the folder lasts as long as this process.
    """
    if parent is not None and (parent / name / proof).is_file():
        return parent / name
    made = members()
    if parent is not None:
        try:
            return _kept(parent, name, proof, made)
        except OSError:
            pass  # the folder is small and quick to make again
    folder = Path(tempfile.mkdtemp(prefix="twostroke-folder-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _write(folder, made)
    return folder


def _write(folder: Path, members: Members) -> None:
    for name, text in members.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if isinstance(text, Path):
            os.symlink(text, folder / name)
        else:
            (folder / name).write_text(text, encoding="utf-8")


def _kept(parent: Path, name: str, proof: str, members: Members) -> Path:
    """Makes the folder next to its place and moves it there as a whole. If two processes do so at once, the folder of
    one of them stays; both have the same content."""
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        _write(made, members)
        os.chmod(made, 0o755)
        os.rename(made, parent / name)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not (parent / name / proof).is_file():
            raise
    return parent / name
