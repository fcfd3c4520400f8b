"""A file that is damaged, cut, of another model or of another format gives nothing, and never the bytes of another
part."""

from __future__ import annotations

from pathlib import Path

import pytest

from twostroke.engine.cache.places import part_place
from twostroke.engine.disk.extent import NewPart, UnusableExtent, head_of, parts_of
from twostroke.engine.disk.files import DiskFiles
from twostroke.engine.disk.store import DiskStore

IDENTITY, OTHER = b"i" * 16, b"j" * 16
PLACES = [bytes([number]) * 16 for number in range(1, 6)]
DATA = [bytes([number]) * (40 + number) for number in range(1, 6)]


def no_report(_: str) -> None:
    """A report that writes nothing."""


def store_in(folder: Path, identity: bytes = IDENTITY, limit: int = 1 << 20) -> DiskStore:
    store = DiskStore(DiskFiles(folder), identity, limit, no_report)
    store.open()
    return store


def read(store: DiskStore) -> list[bytes | None]:
    """The parts that the file has for each place."""
    found = [store.find(store.part_id(place)) for place in PLACES]
    return [None if part is None else store.read(part, place) for part, place in zip(found, PLACES, strict=True)]


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*/*.kv")
    return path


def test_what_was_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    store_in(tmp_path).write(list(zip(PLACES, DATA, strict=True)))
    assert read(store_in(tmp_path)) == DATA
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert only_file(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["every byte", "every cut"])
def test_a_damaged_file_gives_right_bytes_or_none(kind: str, tmp_path: Path) -> None:
    store_in(tmp_path).write(list(zip(PLACES, DATA, strict=True)))
    path = only_file(tmp_path)
    whole = path.read_bytes()
    lost = 0
    for at in range(len(whole)):
        if kind == "every cut":
            path.write_bytes(whole[:at])
        else:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        found = read(store_in(tmp_path))
        assert all(data in (None, right) for data, right in zip(found, DATA, strict=True))
        lost += None in found
        assert not path.exists(), "a file that cannot be used goes"
    assert lost == len(whole)


def test_a_part_is_read_for_its_own_place_alone(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.write(list(zip(PLACES, DATA, strict=True)))
    part = store.find(store.part_id(PLACES[0]))
    assert part is not None
    assert store.read(part, PLACES[1]) is None
    assert part_place(PLACES[0], 0) == PLACES[0]
    assert len({part_place(place, number) for place in PLACES for number in (-1, 0, 1, 2)}) == 4 * len(PLACES)


def test_another_model_finds_nothing_and_harms_nothing(tmp_path: Path) -> None:
    store_in(tmp_path).write(list(zip(PLACES, DATA, strict=True)))
    assert read(store_in(tmp_path, OTHER)) == [None] * len(PLACES)
    assert read(store_in(tmp_path)) == DATA
    moved = tmp_path / OTHER.hex()[:16] / only_file(tmp_path).name
    moved.write_bytes(only_file(tmp_path).read_bytes())
    assert read(store_in(tmp_path, OTHER)) == [None] * len(PLACES)
    assert not moved.exists()


def test_names_say_nothing_of_what_was_written(tmp_path: Path) -> None:
    """The same prompt has other names in another folder, because that folder has another secret."""
    for name in ("one", "two"):
        store_in(tmp_path / name).write(list(zip(PLACES, DATA, strict=True)))
    first, second = only_file(tmp_path / "one"), only_file(tmp_path / "two")
    assert first.name != second.name
    head = first.read_bytes()[: -sum(map(len, DATA))]
    assert not any(place in head for place in PLACES)


def test_heads_of_other_lengths_are_refused() -> None:
    parts = [NewPart(place, place, b"12") for place in PLACES]
    head = head_of(IDENTITY, parts)
    assert len(parts_of("f", head, IDENTITY, len(head) + 10)) == len(parts)
    for size in (len(head) + 9, len(head) + 11, len(head), 0):
        with pytest.raises(UnusableExtent):
            parts_of("f", head, IDENTITY, size)
    with pytest.raises(UnusableExtent):
        parts_of("f", b"", IDENTITY, 0)
