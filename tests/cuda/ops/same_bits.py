"""Runs one op on the emulated device, on the CPU and by its reference. Operands that it changes must have the same
bits."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cuda.ops.operands import changed_on, data_of
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import KVLayer
from twostroke.ops.registry import registry


def same_bits(
    cpu: CpuOps,
    gpu: CudaDevice,
    name: str,
    operands: Sequence[Any],
    which: Sequence[int] = (0,),
    tolerance: float | None = 2e-5,
) -> list[np.ndarray]:
    """which: the operands that the op changes, which are compared. tolerance: the tolerance to the reference; None for
    no comparison.

    Returns the results of the device. NaN is compared as a value, because the bits of a NaN are not fixed.
    """
    found = changed_on(gpu, name, operands, which)
    own, defined = _copies(operands, which), _copies(operands, which)
    getattr(cpu, name)(*own)
    for ours, place in zip(found, which, strict=True):
        theirs = data_of(own[place])
        assert _bits(ours) == _bits(theirs), name
    if tolerance is None:
        return found
    with np.errstate(all="ignore"):
        registry()[name].reference(*defined)
    for ours, place in zip(found, which, strict=True):
        law = data_of(defined[place])
        if law.dtype == np.float32:
            most = float(np.nanmax(np.abs(law), initial=1.0))
            np.testing.assert_allclose(ours, law, rtol=tolerance, atol=tolerance * most)
        else:
            assert np.array_equal(ours, law)
    return found


def _bits(array: np.ndarray) -> bytes:
    if array.dtype != np.float32:
        return array.tobytes()
    return np.where(np.isnan(array), np.float32(np.nan), array).tobytes()


def _copies(operands: Sequence[Any], which: Sequence[int]) -> list[Any]:
    """Copies of the operands. Operands that are changed get memory of their own, and arrays become contiguous."""
    found: list[Any] = []
    for place, item in enumerate(operands):
        if isinstance(item, np.ndarray):
            item = np.ascontiguousarray(item)
        if place in which:
            item = replace(item, data=item.data.copy()) if isinstance(item, KVLayer) else copy(item)
        found.append(item)
    return found
