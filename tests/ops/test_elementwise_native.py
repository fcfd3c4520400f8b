"""Ops without products at every level against their references: odd sizes, strides."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import LEVELS, Answers, check_guard, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.products import take_columns
from twostroke.ops.rows import (
    activate,
    add,
    clamp,
    gate,
    gaussian_cut,
    layer_norm,
    match_rms,
    mix_streams,
    scale_columns,
    soft_cap,
    xielu,
)
from twostroke.ops.rows.activation import Activation
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


@pytest.mark.parametrize(("limit", "shift"), [(1.5, 0.0), (1.5, 1.0), (0.0, 1.0)])
@pytest.mark.parametrize("level", LEVELS)
def test_a_gate_within_a_limit_agrees_with_the_reference_also_over_its_input(
    level: str, limit: float, shift: float
) -> None:
    ops = CpuOps(level, 2)
    for shape in SHAPES:
        rows, width = shape
        x = np.array(random_rows(rows, 2 * width) * np.float32(4))
        if rows > 1:
            x[1, 0], x[1, width] = np.nan, np.nan
        expected, found = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
        for activation in (Activation.QUICK_GELU, Activation.SILU):
            gate.reference(expected, x, activation, limit, shift)
            ops.gate(found, x, int(activation), limit, shift)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        ops.gate(x[:, :width], x, int(activation), limit, shift)
        if Answers.checked:  # between fences, operands that overlap are copies that do not
            assert np.array_equal(x[:, :width], found, equal_nan=True)
    ops.close()


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", LEVELS)
def test_activate_agrees_with_the_reference_and_a_row_with_itself_alone(
    level: str, shape: tuple[int, int], activation: Activation
) -> None:
    ops = CpuOps(level, 2)
    out, room = guarded(*shape)
    x = random_rows(*shape) * np.float32(4)
    out[:], expected = x, x.copy()
    activate.reference(expected, activation)
    ops.activate(out, int(activation))
    check_guard(out, room)
    assert np.allclose(out, expected, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, float(np.abs(x).max(initial=0))))
    for row in range(shape[0]):
        alone = x[row : row + 1].copy()
        ops.activate(alone, int(activation))
        assert np.array_equal(alone[0], out[row])
    ops.close()


@pytest.mark.parametrize("shape", [*SHAPES, (2, 9000)])
@pytest.mark.parametrize("level", LEVELS)
def test_scale_gives_the_bits_of_the_reference_and_soft_cap_is_near_it(level: str, shape: tuple[int, int]) -> None:
    ops = CpuOps(level, 2)
    out, room = guarded(*shape)
    x = random_rows(*shape) * np.float32(20)
    out[:] = x
    ops.scale(out, 0.3)
    check_guard(out, room)
    assert np.array_equal(out, x * np.float32(0.3))
    for cap in (0.5, 30.0, 1e6):
        out[:], expected = x, x.copy()
        soft_cap.reference(expected, cap)
        ops.soft_cap(out, cap)
        check_guard(out, room)
        assert np.allclose(out, expected, rtol=1e-6, atol=0)
        for row in range(shape[0]):
            alone = x[row : row + 1].copy()
            ops.soft_cap(alone, cap)
            assert np.array_equal(alone[0], out[row])
    ops.close()


@pytest.mark.parametrize("level", LEVELS)
def test_clamp_gives_the_bits_of_the_reference(level: str) -> None:
    ops = CpuOps(level, 2)
    for shape in SHAPES:
        out, room = guarded(*shape)
        out[:] = random_rows(*shape)
        out[:1, :1] = np.nan
        expected = out.copy()
        ops.clamp(out, 0.3)
        clamp.reference(expected, 0.3)
        check_guard(out, room)
        assert np.array_equal(out, expected, equal_nan=True)
    for limit in (0.0, -1.0, float("nan")):
        with pytest.raises(BackendError, match="clamp was refused"):
            ops.clamp(np.ones((2, 4), np.float32), limit)
    ops.close()


@pytest.mark.parametrize("shape", [*SHAPES, (2, 9000)])
@pytest.mark.parametrize("level", LEVELS)
def test_scale_columns_gives_the_bits_of_the_reference(level: str, shape: tuple[int, int]) -> None:
    ops = CpuOps(level, 2)
    out, room = guarded(*shape)
    for count in (1, shape[1]):
        weight = np.ascontiguousarray(random_rows(1, count)[0])
        out[:] = random_rows(*shape)
        expected = out.copy()
        scale_columns.reference(expected, weight)
        ops.scale_columns(out, weight)
        check_guard(out, room)
        assert np.array_equal(out, expected)
    with pytest.raises(BackendError):
        ops.scale_columns(out, np.ones(shape[1] + 1, np.float32))
    ops.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", LEVELS)
def test_changes_of_whole_rows_agree_with_their_references_and_a_row_with_itself_alone(
    level: str, shape: tuple[int, int]
) -> None:
    ops = CpuOps(level, 2)
    like = random_rows(shape[0], shape[1] + 1)[:, 1:]
    numbers = np.array([0.3, -0.7, 0.5, -1e-6], np.float32)
    for native, law in (
        (lambda x, rows: ops.match_rms(x, like[rows], 1e-5), lambda x: match_rms.reference(x, like, 1e-5)),
        (lambda x, _rows: ops.gaussian_cut(x, 0.4), lambda x: gaussian_cut.reference(x, 0.4)),
        (lambda x, _rows: ops.xielu(x, numbers), lambda x: xielu.reference(x, numbers)),
    ):
        out, room = guarded(*shape)
        x = random_rows(*shape) * np.float32(3)
        out[:], expected = x, x.copy()
        law(expected)
        native(out, slice(None))
        check_guard(out, room)
        np.testing.assert_allclose(out, expected, rtol=5e-6, atol=5e-6)
        for row in range(shape[0]):
            alone = x[row : row + 1].copy()
            native(alone, slice(row, row + 1))
            assert np.array_equal(alone[0], out[row])
    ops.close()


@pytest.mark.parametrize(("made", "read"), [(1, 1), (4, 4), (3, 1), (2, 5)])
@pytest.mark.parametrize("level", LEVELS)
def test_mix_streams_agrees_with_the_reference_and_a_row_with_itself_alone(level: str, made: int, read: int) -> None:
    ops = CpuOps(level, 2)
    for width in (1, 15, 33):
        base, x = np.array(random_rows(7, made * width)), np.array(random_rows(8, read * width)[1:])
        base, x = base.reshape(7, made, width), x.reshape(7, read, width)
        weights = random_rows(7, made * read)
        out, expected = np.empty(base.shape, np.float32), np.empty(base.shape, np.float32)
        mix_streams.reference(expected, base, x, weights, 0.5)
        ops.mix_streams(out, base, x, weights, 0.5)
        np.testing.assert_allclose(out, expected, rtol=3e-6, atol=3e-6)
        for row in range(7):
            alone, one = np.empty((1, made, width), np.float32), slice(row, row + 1)
            ops.mix_streams(alone, base[one], x[one], weights[one], 0.5)
            assert np.array_equal(alone[0], out[row])
        with pytest.raises(BackendError):
            ops.mix_streams(out, base, x, random_rows(7, made * read + 1), 0.5)
    ops.close()


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", LEVELS)
def test_layer_norm_agrees_with_the_reference_and_a_row_with_itself_alone(
    level: str, shape: tuple[int, int], biased: bool
) -> None:
    """Far from zero too: the mean is subtracted before anything is squared."""
    ops = CpuOps(level, 2)
    rows, columns = shape
    weight, bias = random_rows(2, columns) * np.float32(0.5)
    given = bias if biased else None
    for centre, tolerance in ((0.0, 4e-6), (300.0, 4e-4)):
        out, room = guarded(rows, columns)
        x = random_rows(rows, columns + 2)[:, 1:-1] + np.float32(centre)
        expected = np.empty((rows, columns), np.float32)
        layer_norm.reference(expected, x, weight, given, 1e-5)
        ops.layer_norm(out, x, weight, given, 1e-5)
        check_guard(out, room)
        assert np.abs(out - expected).max(initial=0) < tolerance * max(1.0, float(np.abs(expected).max(initial=0)))
        for row in range(rows):
            alone = x[row : row + 1].copy()
            ops.layer_norm(alone, alone, weight, given, 1e-5)  # over its own input
            assert np.array_equal(alone[0], out[row])
    ops.close()


@pytest.mark.parametrize("level", LEVELS)
def test_the_norm_of_equal_numbers_is_the_bias(level: str) -> None:
    ops = CpuOps(level, 1)
    out, bias = np.empty((2, 33), np.float32), random_rows(1, 33)[0]
    ops.layer_norm(out, np.full((2, 33), 4, np.float32), np.ones(33, np.float32), bias, 1e-5)
    assert np.array_equal(out, np.stack([bias, bias]))
    ops.close()


@pytest.mark.parametrize("level", LEVELS)
def test_extremes_stay_what_they_are(level: str) -> None:
    ops = CpuOps(level, 1)
    ends = np.array([[-1e4, -88.0, -0.0, 0.0, 88.0, 1e4, *[1.0] * 6]], np.float32)
    for activation in Activation:
        out = np.empty((1, 6), np.float32)
        ops.gate(out, ends, int(activation))
        least = -1e4 if activation is Activation.IDENTITY else 0.0
        assert np.isfinite(out).all() and out[0, 0] == pytest.approx(least, abs=1e-3) and out[0, 5] > 0
    ops.close()


def test_what_does_not_fit_is_refused() -> None:
    ops = CpuOps(None, 1)
    with pytest.raises(BackendError, match="gate: x must be"):
        ops.gate(np.empty((2, 4), np.float32), np.ones((2, 7), np.float32), 0)
    with pytest.raises(BackendError, match="gate was refused"):
        ops.gate(np.empty((2, 4), np.float32), np.ones((2, 8), np.float32), 99)
    for cap in (0.0, -1.0, float("nan")):
        with pytest.raises(BackendError, match="soft_cap was refused"):
            ops.soft_cap(np.ones((2, 4), np.float32), cap)
    with pytest.raises(BackendError, match="add: x must be"):
        ops.add(np.empty((2, 4), np.float32), np.ones((3, 4), np.float32))
    with pytest.raises(BackendError, match="activate was refused"):
        ops.activate(np.empty((2, 4), np.float32), len(Activation))
    x, four, five = np.ones((2, 4), np.float32), np.ones(4, np.float32), np.ones(5, np.float32)
    for weight, bias, name in ((five, four, "weight"), (four, five, "bias"), (four.astype(float), None, "weight")):
        with pytest.raises(BackendError, match=f"layer_norm: {name} must be"):
            ops.layer_norm(np.empty((2, 4), np.float32), x, weight, bias, 1e-5)
    with pytest.raises(BackendError, match="layer_norm: weight must be"):
        ops.layer_norm(np.empty((2, 4), np.float32), x, None, four, 1e-5)
    ops.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", LEVELS)
def test_take_columns_gives_the_bits_of_the_reference(level: str, shape: tuple[int, int]) -> None:
    ops = CpuOps(level, 2)
    out, room = guarded(*shape)
    x, order = random_rows(*shape), np.random.default_rng(shape[1]).permutation(shape[1]).astype(np.float32)
    expected = np.empty_like(x)
    take_columns.reference(expected, x, order)
    ops.take_columns(out, x, order)
    check_guard(out, room)
    assert np.array_equal(out, expected)
    for wrong in (-1, shape[1], np.nan):
        with pytest.raises(BackendError, match="take_columns"):
            ops.take_columns(out, x, np.where(order == 0, np.float32(wrong), order))
    with pytest.raises(BackendError, match="take_columns"):
        ops.take_columns(out, x, np.zeros(shape[1] + 1, np.float32))
    ops.close()
