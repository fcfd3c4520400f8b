"""Moving mapped weights into huge pages: the same bytes at the same address, in order, and only as long as it works."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from twostroke.backends.cpu.huge_pages import HUGE_PAGE_BYTES, settle
from twostroke.weights.packed import settle as settle_room
from twostroke.weights.packed.settle import Settler


def mapped(path: Path, num_bytes: int) -> np.ndarray:
    expected = np.random.default_rng(0).integers(0, 256, num_bytes, dtype=np.uint8)
    path.write_bytes(expected.tobytes())
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def aligned(array: np.ndarray) -> int:
    return -(-array.ctypes.data // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def test_bytes_stay_where_they_are(tmp_path: Path) -> None:
    whole = mapped(tmp_path / "weights", 5 * HUGE_PAGE_BYTES)
    before = whole.copy()
    first = aligned(whole)
    assert settle(first, 2 * HUGE_PAGE_BYTES)
    (tmp_path / "weights").write_bytes(b"\0" * whole.nbytes)  # what was moved does not belong to the file any more
    offset = first - whole.ctypes.data
    assert np.array_equal(whole[offset : offset + 2 * HUGE_PAGE_BYTES], before[offset : offset + 2 * HUGE_PAGE_BYTES])
    assert not whole[offset + 2 * HUGE_PAGE_BYTES :].any()


def test_wrong_addresses_are_refused(tmp_path: Path) -> None:
    whole = mapped(tmp_path / "weights", 4 * HUGE_PAGE_BYTES)
    before = whole.copy()
    assert not settle(aligned(whole) + 4096, HUGE_PAGE_BYTES)
    assert not settle(aligned(whole), HUGE_PAGE_BYTES - 4096)
    assert not settle(aligned(whole), 0)
    assert np.array_equal(whole, before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle_room, "DELAY_S", 0.0)
    monkeypatch.setattr(settle_room, "LEAST_BYTES", 1)


def test_everything_is_moved_in_order(quick: None, tmp_path: Path) -> None:
    whole = mapped(tmp_path / "weights", 11 * HUGE_PAGE_BYTES)
    before, calls = whole.copy(), []

    def move(address: int, num_bytes: int) -> bool:
        calls.append((address, num_bytes))
        return settle(address, num_bytes)

    settler = Settler(whole, move, HUGE_PAGE_BYTES)
    settler.start()
    settler.wait()
    settler.close()
    settler.close()
    assert np.array_equal(whole, before)
    assert calls[0][0] == aligned(whole) and all(size <= settle_room.CHUNK_BYTES for _, size in calls)
    assert all(a + size == b for (a, size), (b, _) in zip(calls, calls[1:], strict=False))
    assert settler.moved_bytes == sum(size for _, size in calls) >= 10 * HUGE_PAGE_BYTES


def test_the_first_refusal_ends_it(quick: None, tmp_path: Path) -> None:
    calls = []
    settler = Settler(mapped(tmp_path / "w", 40 << 20), lambda *call: bool(calls.append(call)), HUGE_PAGE_BYTES)
    settler.start()
    settler.wait()
    assert len(calls) == 1 and settler.moved_bytes == 0


def test_small_models_and_early_ends_are_left_alone(tmp_path: Path) -> None:
    def never(address: int, num_bytes: int) -> bool:
        raise AssertionError

    small = Settler(mapped(tmp_path / "small", 8 << 20), never, HUGE_PAGE_BYTES)
    small.start()
    small.wait()
    small.close()
    large = Settler(np.empty(settle_room.LEAST_BYTES + (4 << 20), np.uint8), never, HUGE_PAGE_BYTES)
    large.start()
    large.close()  # within the delay, so nothing was moved
    assert large.moved_bytes == 0
