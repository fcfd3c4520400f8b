"""A packed file that is not in memory: what is read, in which order, and what the caller is told meanwhile."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs
from numpy.typing import NDArray

from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.packed_start import Start
from twostroke.cli.main import main
from twostroke.cli.shared import progress as shown
from twostroke.ops.operands import U8Array
from twostroke.weights.packed import cold_file
from twostroke.weights.packed import file as packed_file
from twostroke.weights.packed.block_sums import BLOCK_BYTES
from twostroke.weights.packed.cold_file import PIECE_BYTES, READING, in_memory, read_cold
from twostroke.weights.packed.file import map_file
from twostroke.weights.packed.room import KeptFolder

SIZE = 3 * PIECE_BYTES + 100
PAGES = PIECE_BYTES // mmap.PAGESIZE
LARGE = {**CONFIG, "hidden_size": 768, "vocab_size": 2048, "intermediate_size": 1024}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.pack"
    path.write_bytes(bytes(SIZE))
    return path


def mapped(path: Path) -> U8Array:
    with path.open("rb") as opened:
        return np.frombuffer(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def nothing(whole: U8Array) -> NDArray[np.bool_]:
    return np.zeros(-(-whole.size // mmap.PAGESIZE), bool)


def all_but_one_page_of_each_piece_but_the_second(whole: U8Array) -> NDArray[np.bool_]:
    there = ~nothing(whole)
    there[PAGES - 1], there[3 * PAGES - 1], there[3 * PAGES] = False, False, False
    return there


def test_only_what_is_not_in_memory_is_read_in_order_and_told_with_its_sum(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int, str]] = []
    read: list[int] = []
    preadv = os.preadv

    def watched(descriptor: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if not flags:  # with a flag, the call asks what is in memory
            read.append(offset)
        return preadv(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", watched)
    probe = all_but_one_page_of_each_piece_but_the_second
    total = read_cold(file, mapped(file), lambda *words: told.append(words), probe, 1)
    assert total == 2 * PIECE_BYTES + 100 and read == [0, 2 * PIECE_BYTES, 3 * PIECE_BYTES]
    assert told == [(done, total, READING) for done in (PIECE_BYTES, 2 * PIECE_BYTES, total)]


@pytest.mark.parametrize(("late", "while_waiting"), [((), 0), ((1, 2, 3), 3), ((3,), 3), ((2,), 2)])
def test_what_was_read_is_compared_as_long_as_the_disk_is_late(
    late: tuple[int, ...], while_waiting: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """late: the pieces that are not in memory yet when it is their turn, until something was compared for each that was
    read. The rest is left to the check after the start."""
    done: list[tuple[str, int]] = []

    def told(read_bytes: int, total_bytes: int, what: str) -> None:
        done.append(("read", read_bytes))

    def is_in_memory(descriptor: int, offset: int) -> bool:
        return offset // PIECE_BYTES not in late

    monkeypatch.setattr(cold_file.here, "is_in_memory", is_in_memory)
    read_cold(file, mapped(file), told, nothing, 1, compare=lambda offset, num_bytes: done.append(("compare", offset)))
    compared = [offset for what, offset in done if what == "compare"]
    assert compared == [piece * PIECE_BYTES for piece in range(while_waiting)]
    assert [end for what, end in done if what == "read"] == [*(PIECE_BYTES * each for each in (1, 2, 3)), SIZE]


def test_blocks_that_a_start_has_compared_are_not_compared_again(tmp_path: Path) -> None:
    model, cache = write(tmp_path / "model", LARGE, random_tensors(LARGE)), tmp_path / "cache"
    entry = Start(model, cache, LARGE).entry
    file, looked = map_file(entry.path, entry.plan), []
    check = file.check_blocks
    file.check_blocks = lambda first, count: looked.append((first, count)) or check(first, count)  # type: ignore
    half = file.header.data_start + BLOCK_BYTES * (file.num_blocks // 2) + 1
    file.check_bytes(0, half)
    file.check_bytes(half, file.whole.size - half)
    assert looked == [(0, file.num_blocks // 2), (file.num_blocks // 2, file.num_blocks - file.num_blocks // 2)]
    file.check_bytes(0, file.header.data_start)
    assert file.check_all() and len(looked) == 2
    other = map_file(entry.path, entry.plan)
    other.check_bytes(0, half)
    told: list[int] = []
    assert other.check_all(on_bytes=told.append) and told[-1] == other.whole.size


def test_damage_is_found_while_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage is in a block that the sample leaves out, so only the comparison during the reading can find it."""
    model, cache = write(tmp_path / "model", LARGE, random_tensors(LARGE)), tmp_path / "cache"
    first = Start(model, cache, LARGE)
    monkeypatch.setattr(packed_file, "SAMPLED_BLOCKS", 1)
    monkeypatch.setattr(read_cold, "__defaults__", (nothing, 1))
    monkeypatch.setattr(cold_file, "PIECE_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(cold_file.here, "is_in_memory", lambda descriptor, offset: False)
    with first.entry.path.open("r+b") as damaged:
        damaged.seek(first.entry.plan.data_start + BLOCK_BYTES + 7)
        damaged.write(b"?!")
    again = Start(model, cache, LARGE)
    assert "do not have their checksum" in again.warnings[0] and "made anew" in again.warnings[0]
    assert Start(model, cache, LARGE).warnings == []


def test_nothing_is_read_where_little_is_missing_or_nothing_can_be_read(file: Path, tmp_path: Path) -> None:
    def told(*words: object) -> None:
        raise AssertionError(words)

    whole = mapped(file)
    assert read_cold(file, whole, told, nothing, SIZE + 1) == 0
    assert read_cold(file, whole, told, lambda each: ~nothing(each), 1) == 0
    read_cold(tmp_path / "removed meanwhile", whole, told, nothing, 1)


def test_what_was_read_is_in_memory(file: Path) -> None:
    """The system decides what it forgets when it is asked to. It has what was just read, and asking changes nothing."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    whole = mapped(file)
    before = in_memory(whole)
    assert before.shape == (-(-SIZE // mmap.PAGESIZE),) and np.array_equal(before, in_memory(whole))
    read_cold(file, whole, lambda *words: None, least_bytes=1)
    assert in_memory(whole).all()


def test_a_file_that_memory_cannot_hold_is_not_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache = write(tmp_path / "model", CONFIG, random_tensors(CONFIG)), tmp_path / "cache"
    first = Start(model, cache)
    monkeypatch.setattr(read_cold, "__defaults__", (nothing, 1))
    assert Start(model, cache).packed_bytes == first.entry.plan.file_bytes, "every byte is told"
    assert Start(model, cache, memory_bytes=100).packed_bytes == 0
    assert KeptFolder(cache).holds(1 << 60) and not KeptFolder(cache, memory_bytes=9).holds(10)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_start_without_a_terminal_prints_how_far_it_is(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["generate", "--max-tokens", "2", "--cache", str(tmp_path), *words, "What is TTFT?"]
    first = CliRunner().invoke(main, asked, catch_exceptions=False)
    monkeypatch.setattr(read_cold, "__defaults__", (nothing, 1))
    monkeypatch.setattr(shown, "BYTES", structs.replace(shown.BYTES, least=1))
    monkeypatch.setattr(cold_file, "PIECE_BYTES", 1 << 20)
    again = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert first.exit_code == again.exit_code == 0
    assert READING not in first.stderr
    lines = [line for line in again.stderr.splitlines() if line.startswith("load: ")]
    assert len(lines) == 5 and all(line.endswith(f"({READING})") for line in lines)
    done, total = lines[-1].split()[1], lines[-1].split()[3]
    assert done == total


def test_lines_come_by_share_and_by_time(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is injected. A slow disk prints a line every ten seconds, a quick one five lines in all."""
    now = [0.0]
    update = shown._line_printer("load", lambda: now[0])
    for done in range(1, 101):
        now[0] += 4.0 if done <= 10 else 0.0
        update(done * 10**7, 10**9, READING)
    said = capsys.readouterr().err.splitlines()
    assert said[:3] == [f"load: {done} of 1,000 MB ({READING})" for done in (30, 60, 90)]
    assert [line.split()[1] for line in said[3:]] == ["200", "400", "600", "800", "1,000"]
