"""Files that a judge made, kept in the user's cache under a digest of all that decides them.

A judge (torch, transformers) takes seconds to import and to make a checkpoint. What it makes follows from the
question, the judge's own source and the versions alone. So it is made once on a machine: where it is kept, a run
imports no judge. Where it is not, the judge makes it (an explicit miss). A daily run keeps nothing from day to day:
each of its files is made once in the run.

Answers that are small enough are stored in the repository instead (tests/judged.py).
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.judged import digest_of
from tests.private_cache import JUDGED, RUN_FOLDER
from tests.tiers import TIER
from twostroke.assembly.settings.env import read_machine
from twostroke.system.object_cache import ObjectCache

MOST_BYTES = 512 << 20
"""The files that were not used for the longest time are removed beyond this size."""
FILES, ANSWERS = "files/", "answers.npz"


class Kept:
    """What a judge made: files of a folder, and arrays."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def unpack(self, folder: Path) -> None:
        """Writes the files into `folder`."""
        with zipfile.ZipFile(self.path) as archive:
            for name in archive.namelist():
                if name.startswith(FILES):
                    place = folder / name.removeprefix(FILES)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(archive.read(name))

    def answers(self) -> dict[str, np.ndarray]:
        """The arrays, by name."""
        with zipfile.ZipFile(self.path) as archive, np.load(io.BytesIO(archive.read(ANSWERS))) as arrays:
            return {name: arrays[name] for name in arrays.files}


Make = Callable[[Path], Mapping[str, Any]]
"""Writes files into a folder that it is given, and returns arrays by name."""


def made(facts: Iterable[object], make: Make) -> Kept:
    """What `make` makes. facts: all that decides it (see `judged.digest_of`). The versions of the judges are added."""
    cache = ObjectCache(_folder())
    missed: list[Path] = []

    def write(place: Path) -> None:
        missed.append(place)
        with tempfile.TemporaryDirectory() as folder:
            arrays = make(Path(folder))
            _pack(place, Path(folder), arrays)

    found = cache.get(".zip", [digest_of(facts)], write)
    if missed:
        cache.trim(MOST_BYTES)
    return Kept(found)


def answer(facts: Iterable[object], ask: Callable[[], np.ndarray]) -> np.ndarray:
    """One array that a judge gives."""
    return made(facts, lambda folder: {"answer": ask()}).answers()["answer"]


def facts_of(folder: Path) -> list[object]:
    """Names and contents of all files of a folder, as facts."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [fact for path in files for fact in (path.relative_to(folder).as_posix(), path)]


def text(value: object) -> np.ndarray:
    """JSON as an array."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def value_of(array: np.ndarray) -> Any:
    """What `text` was given."""
    return json.loads(array.tobytes())


def _pack(place: Path, folder: Path, arrays: Mapping[str, Any]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    with zipfile.ZipFile(place, "w") as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            archive.write(path, FILES + path.relative_to(folder).as_posix())
        archive.writestr(ANSWERS, packed.getvalue())


def _folder() -> Path:
    run = os.environ.get(RUN_FOLDER)
    if TIER.daily and run is not None:
        return Path(run) / JUDGED
    return read_machine().cache_folder / JUDGED
