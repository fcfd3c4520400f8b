"""Arrays to pointers, with the checks that native code cannot do.

Knows: dtypes, strides.
Must not know: ops' meanings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twostroke.types.errors import BackendError

_F32 = np.dtype(np.float32)
_I32 = np.dtype(np.int32)


def refuse(op: str, argument: str, expected: str, array: Any) -> BackendError:
    """The one error for a wrong operand."""
    found = f"{array.dtype} of shape {array.shape}, strides {array.strides}"
    return BackendError(f"{op}: {argument} must be {expected}.", why=f"It is {found}.")


def rows(array: Any, op: str, argument: str) -> tuple[int, int]:
    """(T, D) float32 with contiguous rows -> (address, row stride in elements)."""
    # NumPy gives arrays without elements strides of zero: there is nothing to be contiguous.
    contiguous = array.ndim == 2 and (array.strides[1] == 4 or array.shape[1] <= 1 or array.size == 0)
    if array.dtype != _F32 or not contiguous or array.strides[0] % 4:
        raise refuse(op, argument, "float32 (T, D) with contiguous rows", array)
    return array.ctypes.data, max(array.strides[0] // 4, array.shape[1])


def heads(array: Any, op: str, argument: str) -> tuple[int, int]:
    """(T, H, D) float32 whose last two axes are contiguous -> (address, row stride in elements)."""
    if array.dtype != _F32 or array.ndim != 3 or not _contiguous_heads(array) or array.strides[0] % 4:
        raise refuse(op, argument, "float32 (T, H, D) with contiguous heads", array)
    return array.ctypes.data, max(array.strides[0] // 4, array.shape[1] * array.shape[2])


def vector(array: Any, length: int, op: str, argument: str) -> int:
    """(length,) contiguous float32 -> address."""
    if array.dtype != _F32 or array.shape != (length,) or not array.flags.c_contiguous:
        raise refuse(op, argument, f"contiguous float32 ({length},)", array)
    return int(array.ctypes.data)


def integers(array: Any, length: int, op: str, argument: str) -> int:
    """(length,) contiguous int32 -> address."""
    if array.dtype != _I32 or array.shape != (length,) or not array.flags.c_contiguous:
        raise refuse(op, argument, f"contiguous int32 ({length},)", array)
    return int(array.ctypes.data)


def _contiguous_heads(array: Any) -> bool:
    _, num_heads, dim = array.shape
    dense = array.strides[2] == 4 and (array.strides[1] == 4 * dim or num_heads <= 1)
    return array.size == 0 or bool(dense)
