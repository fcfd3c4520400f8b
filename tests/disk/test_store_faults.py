"""Whichever call of the disk fails, the result is the right bytes or none, and one line. Nothing is left half
written."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.disk.test_extent import DATA, IDENTITY, PLACES, no_report, read, store_in
from twostroke.engine.disk.files import PARTIAL, DiskFiles
from twostroke.engine.disk.index import FoundFile
from twostroke.engine.disk.store import DiskStore

CALLS = ("make_folder", "list", "write", "read", "remove", "touch")


class FailingFiles(DiskFiles):
    """Makes call number k of one kind fail, and with `ever` all calls after it."""

    def __init__(self, folder: Path, call: str, k: int, ever: bool, code: int) -> None:
        super().__init__(folder)
        self._call, self._left, self._ever, self._code = call, k, ever, code

    def _count(self, call: str) -> None:
        if call == self._call:
            self._left -= 1
            if self._left == 0 or (self._ever and self._left < 0):
                raise OSError(self._code, os.strerror(self._code))

    def make_folder(self, name: str) -> None:
        self._count("make_folder")
        super().make_folder(name)

    def list(self) -> list[FoundFile]:
        self._count("list")
        return super().list()

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        self._count("write")
        return super().write(name, pieces)

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        self._count("read")
        return super().read(name, offset, num_bytes)

    def remove(self, name: str) -> None:
        self._count("remove")
        super().remove(name)

    def touch(self, name: str, stay_s: float = 0.0) -> None:
        self._count("touch")
        super().touch(name, stay_s)


def use(store: DiskStore) -> None:
    """Opens, writes, reads and makes room."""
    store.open()
    for place, data in zip(PLACES, DATA, strict=True):
        store.write([(place, data)])
    found = read(store)
    assert all(data in (None, right) for data, right in zip(found, DATA, strict=True))
    store.used([part.file for place in PLACES if (part := store.find(store.part_id(place))) is not None])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("ever", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
def test_each_call_may_fail_at_any_time(call: str, ever: bool, code: int, tmp_path: Path) -> None:
    for k in range(1, 12):
        folder, said = tmp_path / str(k), list[str]()
        use(DiskStore(FailingFiles(folder, call, k, ever, code), IDENTITY, 600, said.append))
        assert len(said) <= 2, said
        assert all(line.endswith(".") and "\n" not in line for line in said)
        assert not list(folder.rglob(f"*{PARTIAL}")) if folder.exists() else True
        after = read(store_in(folder, limit=600))
        assert all(data in (None, right) for data, right in zip(after, DATA, strict=True))


@pytest.mark.parametrize("operation", ["write", "replace", "open", "close"])
def test_a_file_is_whole_or_not_there(operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call number k of the system fails while files are written."""
    real: Callable[..., object] = getattr(os, operation)
    for k in range(1, 8):
        folder, counted = tmp_path / str(k), itertools.count(1)
        store = store_in(folder)
        with monkeypatch.context() as patched:

            def failing(*given: object, counted: itertools.count[int] = counted, k: int = k, **named: object) -> object:
                if next(counted) == k:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*given, **named)

            patched.setattr(os, operation, failing)
            for place, data in zip(PLACES, DATA, strict=True):
                store.write([(place, data)])
        assert not list(folder.rglob(f"*{PARTIAL}"))
        found = read(store_in(folder))
        assert all(data in (None, right) for data, right in zip(found, DATA, strict=True))


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    store_in(tmp_path).write(list(zip(PLACES, DATA, strict=True)))
    said: list[str] = []
    files = FailingFiles(tmp_path, "make_folder", 1, ever=True, code=errno.EROFS)
    store = DiskStore(files, IDENTITY, 1 << 20, said.append)
    store.open()
    assert read(store) == DATA and not store.writable
    store.write([(b"new" * 5 + b".", b"new")])
    assert len(said) == 1 and "Read-only file system" in said[0]
    assert store.counts.lost == 1


def test_links_and_foreign_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kv").symlink_to(tmp_path / "elsewhere")
    said: list[str] = []
    store = DiskStore(DiskFiles(tmp_path / "kv"), IDENTITY, 1 << 20, said.append)
    store.open()
    store.write([(PLACES[0], DATA[0])])
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert said and "link" in said[0]


def test_a_folder_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir(mode=0o755)
    store_in(tmp_path / "kv")
    assert (tmp_path / "kv").stat().st_mode & 0o777 == 0o700


def test_many_failures_in_a_row_leave_the_disk_alone(tmp_path: Path) -> None:
    said: list[str] = []
    for place, data in zip(PLACES, DATA, strict=True):
        store_in(tmp_path).write([(place, data)])
    more = [bytes([number]) * 16 for number in range(20, 40)]
    for place in more:
        store_in(tmp_path).write([(place, place)])
    store = DiskStore(DiskFiles(tmp_path), IDENTITY, 1 << 20, said.append)
    store.open()
    for path in tmp_path.rglob("*.kv"):
        path.write_bytes(bytes(path.stat().st_size))
    for place in more:
        part = store.find(store.part_id(place))
        assert part is None or store.read(part, place) is None
    assert not store.readable
    assert len(said) == 2, "the first damaged file, and the end of reading"


def test_the_folder_stays_within_its_bound(tmp_path: Path) -> None:
    store = store_in(tmp_path, limit=4000)
    for number in range(100):
        store.write([(number.to_bytes(16, "big"), bytes(500))])
        assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 4000
    assert store.counts.removed_files > 80
    assert store.find(store.part_id((99).to_bytes(16, "big"))) is not None, "the newest stays"
    store.write([(b"x" * 16, bytes(5000))])
    assert store.find(store.part_id(b"x" * 16)) is None


def test_files_of_killed_processes_go(tmp_path: Path) -> None:
    store_in(tmp_path).write([(PLACES[0], DATA[0])])
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for name, age_s in (("old", 3600), ("new", 0)):
        path = folder / f"{name}.kv.1-1{PARTIAL}"
        path.write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    store = DiskStore(DiskFiles(tmp_path), IDENTITY, 1 << 20, no_report)
    store.open()
    assert [path.name for path in folder.glob(f"*{PARTIAL}")] == [f"new.kv.1-1{PARTIAL}"]
