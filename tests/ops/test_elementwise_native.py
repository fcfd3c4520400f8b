"""add and gate at every level against their references, over odd sizes and strides."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import LEVELS, check_guard, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops import add, gate
from twostroke.ops.activation import Activation
from twostroke.types.errors import BackendError

SHAPES = [(0, 8), (1, 1), (3, 15), (2, 16), (5, 33), (19, 200)]
TOLERANCE = 2e-6


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", LEVELS)
def test_add_gives_the_bits_of_the_reference(level: str, shape: tuple[int, int]) -> None:
    ops = CpuOps(level, 2)
    out, room = guarded(*shape)
    out[:] = random_rows(*shape)[:, ::-1]
    expected, x = out.copy(), random_rows(*shape)
    add.reference(expected, x)
    ops.add(out, x)
    check_guard(out, room)
    assert np.array_equal(out, expected)
    ops.close()


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", LEVELS)
def test_gate_agrees_with_the_reference_and_a_row_with_itself_alone(
    level: str, shape: tuple[int, int], activation: Activation
) -> None:
    ops = CpuOps(level, 2)
    rows, width = shape
    out, room = guarded(rows, width)
    x = random_rows(rows, 2 * width) * np.float32(4)
    expected = np.empty((rows, width), np.float32)
    gate.reference(expected, x, activation)
    ops.gate(out, x, int(activation))
    check_guard(out, room)
    assert np.allclose(out, expected, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, float(np.abs(x).max(initial=0)) ** 2))
    for row in range(rows):
        alone = np.empty((1, width), np.float32)
        ops.gate(alone, x[row : row + 1], int(activation))
        assert np.array_equal(alone[0], out[row])
    ops.close()


@pytest.mark.parametrize("level", LEVELS)
def test_extremes_stay_what_they_are(level: str) -> None:
    ops = CpuOps(level, 1)
    ends = np.array([[-1e4, -88.0, -0.0, 0.0, 88.0, 1e4, *[1.0] * 6]], np.float32)
    for activation in Activation:
        out = np.empty((1, 6), np.float32)
        ops.gate(out, ends, int(activation))
        assert np.isfinite(out).all() and out[0, 0] == pytest.approx(0.0, abs=1e-3) and out[0, 5] > 0
    ops.close()


def test_what_does_not_fit_is_refused() -> None:
    ops = CpuOps(None, 1)
    with pytest.raises(BackendError, match="gate: x must be"):
        ops.gate(np.empty((2, 4), np.float32), np.ones((2, 7), np.float32), 0)
    with pytest.raises(BackendError, match="gate was refused"):
        ops.gate(np.empty((2, 4), np.float32), np.ones((2, 8), np.float32), 9)
    with pytest.raises(BackendError, match="add: x must be"):
        ops.add(np.empty((2, 4), np.float32), np.ones((3, 4), np.float32))
    ops.close()
