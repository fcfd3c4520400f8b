"""The emulator always finds errors that a GPU would show only now and then: each planted fault, with every seed."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from tests.cuda.emulator.fake import HERE, compile_emulated

FAULTS = {
    1: ("read of what another thread wrote, with no barrier", "read of shared memory that this block never wrote"),
    2: ("write of what another thread read, with no barrier", "read of what another thread wrote, with no barrier"),
    3: ("write of what another thread wrote, with no barrier in between: room",),
    4: ("read of shared memory that this block never wrote: room",),
    5: ("an index outside shared memory: room[32]",),
    6: ("a barrier that threads which have ended do not reach",),
    12: ("an operation of a warp that some of its threads do not reach",),
    18: (
        "adding to what is read or written too, with no barrier in between: counter",
        "read of what another thread wrote, with no barrier in between: counter",
    ),
    14: ("read of shared memory that this block never wrote: copied", "copies that the thread did not wait for"),
}
"""The messages. Where there are two, the order of the threads decides which one comes."""
RACES = {
    7: ("read of what another block wrote", "write of what another block wrote"),
    8: ("read of what another thread wrote", "write of what another thread read"),
    9: ("read of what another block wrote", "write of what another block read"),
}
"""Races in global memory, which only the watched build finds."""


@cache
def broken(watched: bool) -> ctypes.CDLL:
    library = ctypes.CDLL(str(compile_emulated([HERE / "broken_kernels.cpp"], watched=watched)))
    library.run_broken.restype = ctypes.c_char_p
    library.run_broken.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64]
    return library


def run(which: int, seed: int, watched: bool = False) -> tuple[str | None, np.ndarray]:
    room = np.full(2048, -1, np.int32)
    out = room[-room.ctypes.data % 4096 // 4 :][:1024]  # a page
    found = broken(watched).run_broken(which, out.ctypes.data, seed)
    return None if found is None else found.decode(), out


@pytest.mark.parametrize("which", [0, 11, 13, 16, 17, 19])
def test_a_sound_kernel_gives_the_same_in_every_order(which: int) -> None:
    for seed in range(8):
        wrong, out = run(which, seed)
        assert wrong is None
        np.testing.assert_array_equal(out[:64], np.tile(np.arange(31, -1, -1), 2))


def test_products_of_small_matrices() -> None:
    wrong, out = run(15, 1)
    assert wrong is None
    column = np.arange(8) - 4
    np.testing.assert_array_equal(out[:128].reshape(16, 8), (np.arange(16) - 8)[:, None] * column)
    np.testing.assert_array_equal(out[128:256].reshape(16, 8), (np.arange(16) + 200)[:, None] * column)
    np.testing.assert_array_equal(out[256:384].reshape(16, 8), (np.arange(16) - 8)[:, None] * (column + 248))


@pytest.mark.parametrize("which", FAULTS)
def test_every_fault_is_found(which: int) -> None:
    for seed in range(8):
        wrong, _ = run(which, seed)
        assert wrong is not None and any(words in wrong for words in FAULTS[which])


@pytest.mark.parametrize("which", RACES)
def test_every_race_in_global_memory_is_found(which: int) -> None:
    for seed in range(8):
        wrong, _ = run(which, seed, watched=True)
        assert wrong is not None and "global memory" in wrong and any(words in wrong for words in RACES[which])
        assert run(which, seed)[0] is None


@pytest.mark.parametrize("which", [0, 10, 16])
def test_what_barriers_order_is_no_race(which: int) -> None:
    for seed in range(8):
        wrong, out = run(which, seed, watched=True)
        assert wrong is None
        np.testing.assert_array_equal(out[:64], np.tile(np.arange(31, -1, -1), 2))
