"""The index gives the place of a part and never the place of another one. Files are removed in the order of their last
use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twostroke.engine.disk.index import DiskIndex, DiskPart, FoundFile, leaving

names = st.sampled_from(["a", "b", "c", "d"])
ids = st.integers(0, 9).map(lambda number: bytes([number]) * 16)
changes = st.lists(st.tuples(names, st.one_of(st.none(), st.lists(ids, max_size=6, unique=True))), max_size=40)


@given(changes)
def test_a_part_is_found_in_a_file_that_has_it(made: list[tuple[str, list[bytes] | None]]) -> None:
    index, there = DiskIndex(), dict[str, list[bytes]]()
    for name, parts in made:
        if parts is None:
            index.forget(name)
            there.pop(name, None)
        else:
            index.add(name, [(part_id, DiskPart(name, at, 1, part_id)) for at, part_id in enumerate(parts)])
            there[name] = parts
        assert sorted(index.files) == sorted(there)
        for part_id in (bytes([number]) * 16 for number in range(10)):
            found = index.find(part_id)
            if found is None:
                continue
            assert found.digest == part_id
            assert there[found.file][found.offset] == part_id
        assert len(index) <= sum(map(len, there.values()))


@given(changes)
def test_what_one_file_alone_has_is_found(made: list[tuple[str, list[bytes] | None]]) -> None:
    index, only = DiskIndex(), set[bytes]()
    for number, (_, parts) in enumerate(made):
        own = [part_id for part_id in parts or () if part_id not in only]
        only.update(own)
        index.add(f"file {number}", [(part_id, DiskPart(f"file {number}", 0, 1, part_id)) for part_id in own])
    assert all(part_id in index for part_id in only)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=20),
    st.integers(0, 300),
    st.integers(0, 100),
)
def test_a_folder_is_bounded_and_the_oldest_leave_first(
    sizes: list[tuple[int, int]], limit: int, added: int
) -> None:
    files = [FoundFile(str(number), size, used) for number, (size, used) in enumerate(sizes)]
    gone = leaving(files, limit, added)
    left = [file for file in files if file not in gone]
    if added <= limit:
        assert sum(file.num_bytes for file in left) + added <= limit
    assert all(file.used_ns <= other.used_ns for file in gone for other in left)
    if gone:
        assert sum(file.num_bytes for file in (*left, gone[-1])) + added > limit, "one would have been enough"
