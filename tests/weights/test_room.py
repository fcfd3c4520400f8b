"""Room in the cache of packed weights: files that were used longest ago are removed, files in use stay, and no mapping
ever breaks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.packed_start import Start, leaves
from twostroke.types.spec.formats import BF16, F32
from twostroke.weights.packed import room
from twostroke.weights.packed.file import open_file
from twostroke.weights.packed.header import StaleFile
from twostroke.weights.packed.in_use import alone, in_use
from twostroke.weights.packed.room import KeptFolder

ROOT = Path(__file__).resolve().parents[2]
PLENTY = 1 << 40
usage = namedtuple("usage", "total used free")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model", CONFIG, random_tensors(CONFIG))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def old(cache: Path) -> list[Path]:
    """Three files of 1000 bytes, from the one used longest ago to the last one. Their names have another order."""
    cache.mkdir()
    paths = [cache / name for name in ("c.pack", "a.pack", "b.pack")]
    for at, path in enumerate(paths):
        path.write_bytes(bytes(1000))
        os.utime(path, (1e9 + at, 1e9 + at))
    return paths


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many bytes the disk has free."""
    monkeypatch.setattr(room, "KEPT_FREE_BYTES", 0)

    def set_free(num_bytes: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, num_bytes))

    return set_free


def test_what_was_used_longest_ago_makes_room_and_what_is_in_use_stays(model, cache, free):
    first, second = Start(model, cache), Start(model, cache, weight_format=BF16)
    before = {key: array.copy() for key, array in leaves(first.weights).items()}
    os.utime(first.entry.path, (1e9 - 1, 1e9 - 1))
    os.utime(second.entry.path, (1e9, 1e9))
    gone = second.entry.path
    del second
    free(0)
    third = Start(model, cache, weight_format=F32, limit_bytes=PLENTY)
    assert "into memory" in third.warnings[0] and gone.exists(), "too little would be freed, so nothing was"
    free(third.entry.plan.file_bytes - 1)
    third = Start(model, cache, weight_format=F32, limit_bytes=PLENTY)
    assert {path.name for path in cache.iterdir()} == {first.entry.path.name, third.entry.path.name}
    [sentence] = third.warnings
    assert f"the packed weights of {model} were removed: 0.00 GB, last used 2001-09-" in sentence
    first.entry.path.unlink()
    assert all(np.array_equal(array, before[key]) for key, array in leaves(first.weights).items())
    first.file.close()


def test_the_usual_bound_is_half_of_the_room_and_only_says_what_is_removed(cache, old, free):
    told: list[str] = []
    free(4200)
    KeptFolder(cache).make_room(cache / "new.pack", 600, told.append)
    assert not told, "3600 of 7200 bytes are the bound"
    KeptFolder(cache).make_room(cache / "new.pack", 601, told.append)
    assert [path.exists() for path in old] == [False, True, True] and len(told) == 1
    KeptFolder(cache).make_room(cache / "new.pack", 4200, told.append)
    assert not any(path.exists() for path in old), "a file that the disk can hold is kept, above the bound too"
    with pytest.raises(OSError, match="are free"):
        KeptFolder(cache).make_room(cache / "new.pack", 4201, told.append)


def test_a_bound_that_a_user_sets_holds_for_the_new_file_too(cache, old, free):
    told: list[str] = []
    free(PLENTY)
    KeptFolder(cache, 3000).make_room(old[2], 1000, told.append)
    assert not told, "a file that is replaced counts once"
    KeptFolder(cache, 3000).make_room(cache / "new.pack", 1000, told.append)
    assert [path.exists() for path in old] == [False, True, True] and len(told) == 1
    with pytest.raises(OSError, match="--cache-limit allows 0.00 GB"):
        KeptFolder(cache, 3000).make_room(cache / "new.pack", 3001, told.append)
    assert old[1].exists() and old[2].exists()


@pytest.mark.parametrize("stuck", [{0}, {1}, {0, 1}, {0, 1, 2}])
def test_files_that_cannot_be_removed_are_left_and_the_next_one_goes(stuck, cache, old, free, monkeypatch):
    unlink = os.unlink

    def refusing(path, *more, **words):
        if path in [old[place] for place in stuck]:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, *more, **words)

    monkeypatch.setattr(os, "unlink", refusing)
    free(0)
    told: list[str] = []
    gone = [place for place in range(3) if place not in stuck][:1]
    try:
        KeptFolder(cache, PLENTY).make_room(cache / "new.pack", 1000, told.append)
    except OSError as error:
        assert not gone and "0.00 GB are in files that are not in use" in str(error)
    assert [path.exists() for path in old] == [place not in gone for place in range(3)] and len(told) == len(gone)


def test_a_file_is_in_use_from_its_packing_until_its_weights_are_gone(model, cache):
    start = Start(model, cache)
    path = start.entry.path
    assert in_use(path) is True
    os.utime(path, (1, 1))
    start.file.close()
    assert path.stat().st_mtime > 1, "closing is a use"
    del start
    assert in_use(path) is False and in_use(cache / "nothing") is None
    os.utime(path, (1, 1))
    again = Start(model, cache, finish=False)
    assert path.stat().st_mtime > 1 and again.packed_bytes == 0, "mapping is a use"


CHILD = """
import sys
from pathlib import Path
from twostroke.weights.packed.file import open_file
file = open_file(Path(sys.argv[1]))
print("mapped", flush=True)
sys.stdin.read()
"""


def test_another_process_uses_a_file_until_it_ends_even_by_a_kill(model, cache):
    path = Start(model, cache).entry.path
    assert in_use(path) is False
    command = [sys.executable, "-c", CHILD, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None and child.stdout.readline() == "mapped\n"
    assert in_use(path) is True
    child.kill()
    child.communicate()
    assert in_use(path) is False


def test_a_start_that_meets_a_removal_does_not_map_the_file(cache, old, monkeypatch):
    opened = os.open

    def removed_behind_it(path, *flags):
        descriptor = opened(path, *flags)
        monkeypatch.undo()
        with alone(path) as unused:
            assert unused
            path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", removed_behind_it)
    with pytest.raises(StaleFile, match="removed at this moment"):
        open_file(old[0])
