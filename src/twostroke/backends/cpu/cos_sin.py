"""Cosines and sines for rotary tables, made by a native function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from twostroke.backends.cpu.library import declared, load_library
from twostroke.ops.cos_sin import CONSTANTS, F64Array, checked_angles, cos_sin

_P = ctypes.c_void_p
SIGNATURES = {"ts_cos_sin": (ctypes.c_int32, [_P, ctypes.c_int64, _P, _P, _P])}


def native_cos_sin(level: str) -> Callable[[F64Array], tuple[F64Array, F64Array]]:
    """Returns a function with the results of `ops.cos_sin.cos_sin`, bit for bit."""
    try:
        function = declared(load_library(level), SIGNATURES).ts_cos_sin
    except AttributeError:
        return cos_sin
    constants = np.array(CONSTANTS)

    def computed(angles: F64Array) -> tuple[F64Array, F64Array]:
        given = np.ascontiguousarray(checked_angles(angles))
        cosine, sine = np.empty(given.shape), np.empty(given.shape)
        function(given.ctypes.data, given.size, constants.ctypes.data, cosine.ctypes.data, sine.ctypes.data)
        return cosine, sine

    return computed
