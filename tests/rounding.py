"""How far results may differ where activations were rounded to whole numbers on the way.

The last bits of NumPy's float32 sums depend on the instructions that NumPy found on the machine. A number that lies
between two steps may be rounded to one of them natively and to the other by NumPy. So the rule is:

    A difference of one step in some activations changes a result by no more than the rounding of all activations does.

One step is at most twice the rounding error of one activation, and few activations lie between two steps. The effect of
rounding is measured: it is the difference from the same model whose activations stay float32. The rule contains no
fixed figure, and a wrong op misses it by far.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from twostroke.ops.operands import F32Array
from twostroke.ops.products import linear


def error(found: F32Array, expected: F32Array) -> float:
    """The largest difference, as a share of the range of the expected numbers."""
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


def assert_same_but_for_steps(found: F32Array, rounded: F32Array, unrounded: F32Array) -> None:
    """Checks the rule. rounded: the reference; unrounded: the same without rounding of activations."""
    allowed = error(unrounded, rounded)
    assert 0 < allowed < 0.1, f"rounding changes {allowed:.1e} of the range: the rule says nothing there"
    assert error(found, rounded) <= allowed


@contextmanager
def other_last_bits(seed: int) -> Iterator[None]:
    """In this block, NumPy's references round activations whose last bits differ, as on a machine with other
    instructions. Each number becomes itself or one of its two neighbours."""
    rng, quantize = np.random.default_rng(seed), linear.quantize_rows

    def changed(x: F32Array, group: int, padded_columns: int):  # type: ignore[no-untyped-def]
        towards = rng.choice(np.array([-np.inf, 0, np.inf], np.float32), x.shape)
        moved = np.where(towards == 0, x, np.nextafter(x, towards))
        return quantize(moved.astype(np.float32), group, padded_columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "quantize_rows", changed)
        yield
