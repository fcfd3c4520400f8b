"""The emulator finds errors in kernels that use signals, bulk copies and products of warpgroups, with every seed."""

from __future__ import annotations

import ctypes
import re
from functools import cache

import numpy as np
import pytest

from tests.cuda.emulator.fake import HERE, compile_emulated

FAULTS = {
    1: "what a bulk copy has not brought|what no bulk copy brought",
    2: "a bulk copy to what a thread may still read: bulk_room",
    3: "a signal that never comes",
    4: "a write to registers of a product that is under way: bulk_room",
    5: "bulk copies that no thread waited for",
    6: "a product of what no bulk copy brought: bulk_room",
    7: "read of what a bulk copy",
    8: "write of what a bulk copy brought and a thread may still read: bulk_room",
}
"""Patterns of the messages about each fault.

The faults are: a read before the signal, a copy before all have read, more bytes announced than copied. The next ones
are a write to registers of a product, a copy at the end of a block, and no copy. The last two are a wait for the signal
of another copy, and a write while others multiply."""


@cache
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(compile_emulated([HERE / "broken_bulk.cpp"])))
    found.run_bulk.restype = ctypes.c_char_p
    found.run_bulk.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    return found


def run(fault: int, tables: np.ndarray, seed: int) -> tuple[str | None, np.ndarray]:
    """tables (2, 64, 128) int8."""
    laid, out = np.zeros((2, 64, 8, 16), np.int8), np.zeros((2, 2, 64), np.int32)
    for row in range(64):
        for chunk in range(8):
            laid[:, row, chunk ^ row % 8] = tables[:, row, 16 * chunk : 16 * chunk + 16]
    found = library().run_bulk(fault, laid.ctypes.data, out.ctypes.data, seed)
    return None if found is None else found.decode(), out


def any_tables() -> np.ndarray:
    return np.random.default_rng(5).integers(-128, 128, (2, 64, 128)).astype(np.int8)


def test_products_of_copied_tables() -> None:
    tables = any_tables()
    for seed in range(8):
        wrong, out = run(0, tables, seed)
        assert wrong is None
        np.testing.assert_array_equal(out, np.tile(tables.sum(axis=2, dtype=np.int32), (2, 1, 1)))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found(fault: int) -> None:
    for seed in range(8):
        wrong, _ = run(fault, any_tables(), seed)
        assert wrong is not None and re.search(FAULTS[fault], wrong)
