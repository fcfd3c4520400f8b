"""Rows of rotary tables, made by a native function."""

from __future__ import annotations

import numpy as np

from twostroke.backends.cpu.library import ROTARY_ROWS, declared, load_library
from twostroke.ops.attention.rope_tables import F64Array, WriteRows
from twostroke.ops.cos_sin import CONSTANTS
from twostroke.ops.operands import F32Array


def native_rows(level: str) -> WriteRows | None:
    """Returns a function that computes rows of rotary cosines and sines with a level's library; None where the library
    has no such function."""
    try:
        function = declared(load_library(level), ROTARY_ROWS).ts_rotary_rows
    except AttributeError:
        return None
    constants = np.array(CONSTANTS)

    def write(frequencies: F64Array, back: int, factors: tuple[float, float], cos: F32Array, sin: F32Array) -> None:
        given = np.ascontiguousarray(frequencies, np.float64)
        rows, pairs = cos.shape
        where = (given.ctypes.data, pairs, rows, back, constants.ctypes.data)
        if function(*where, *factors, cos.ctypes.data, sin.ctypes.data):
            raise ValueError(f"ts_rotary_rows refused a table of {rows} rows")

    return write
