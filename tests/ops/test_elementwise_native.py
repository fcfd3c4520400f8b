"""Ops without products at every level, beyond their cases: results that replace inputs, extremes, and refused calls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import LEVELS, Answers, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import RopeTable
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.pointwise import PointStep, activation_step, program_of, steps_of
from twostroke.types.errors import BackendError


@pytest.mark.parametrize("level", LEVELS)
def test_a_result_may_lie_over_what_is_read(level: str) -> None:
    ops, weight = CpuOps(level, 2), np.array(random_rows(1, 33)[0])
    calls = {
        "gate": lambda out, x: ops.gate(out, x, int(Activation.QUICK_GELU), 1.5, 1.0),
        "layer_norm": lambda out, x: ops.layer_norm(out, x[:, :33], weight, None, 1e-5),
        "gated_norm": lambda out, x: ops.gated_norm(
            out, x[:, :33], x[:, 33:], weight, 1e-5, 3, int(Activation.SILU), 0
        ),
    }
    for name, call in calls.items():
        x, apart = np.array(random_rows(5, 66)), np.empty((5, 33), np.float32)
        call(apart, x)
        call(x[:, :33], x)
        if Answers.checked:  # between fences, operands that overlap become copies that do not
            assert np.array_equal(x[:, :33], apart), name
    ops.close()


@pytest.mark.parametrize("level", LEVELS)
def test_shares_of_many_rounds_add_up_to_one(level: str) -> None:
    x, made, base = random_rows(7, 24) * np.float32(3), np.empty((7, 24), np.float32), np.array(random_rows(1, 24)[0])
    ops = CpuOps(level, 2)
    ops.stream_shares(made, x, base, np.array([0.3, -0.7, 1.1], np.float32), 4, 20, 1e-6)
    np.testing.assert_allclose(made[:, 8:].reshape(7, 4, 4).sum(axis=1), 1, atol=0.02)
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
    for count in (3, 5):
        with pytest.raises(BackendError, match="mix_streams"):
            base, streams = np.ones((2, 2, 4), np.float32), np.ones((2, 2, 4), np.float32)
            ops.mix_streams(base.copy(), base, streams, np.ones((2, count), np.float32), 0.5)
    for wrong in (-1, 4, np.nan):
        with pytest.raises(BackendError, match="take_columns"):
            order = np.array([0, 1, wrong, 3], np.float32)
            ops.take_columns(np.empty((2, 4), np.float32), np.ones((2, 4), np.float32), order)
    x, four, five = np.ones((2, 4), np.float32), np.ones(4, np.float32), np.ones(5, np.float32)
    for weight, bias, name in ((five, four, "weight"), (four, five, "bias"), (four.astype(float), None, "weight")):
        with pytest.raises(BackendError, match=f"layer_norm: {name} must be"):
            ops.layer_norm(np.empty((2, 4), np.float32), x, weight, bias, 1e-5)
    with pytest.raises(BackendError, match="layer_norm: weight must be"):
        ops.layer_norm(np.empty((2, 4), np.float32), x, None, four, 1e-5)
    ops.close()


UNFIT = {
    "a limit of 0": (PointStep.WITHIN_A, None, None, 0.0),
    "a limit below 0": (PointStep.WITHIN_A, None, None, -1.0),
    "a limit that is none": (PointStep.WITHIN_A, None, None, float("nan")),
    "three bounds": (PointStep.BETWEEN_NUMBERS, None, 3, 0.0),
    "no bounds": (PointStep.BETWEEN_NUMBERS, None, None, 0.0),
    "three factors for four columns": (PointStep.TIMES_NUMBERS, None, 3, 0.0),
    "five factors for four columns": (PointStep.TIMES_NUMBERS, None, 5, 0.0),
    "no factors": (PointStep.TIMES_NUMBERS, None, None, 0.0),
    "one number to take from four columns": (PointStep.MINUS_NUMBERS, None, 1, 0.0),
    "no numbers to take": (PointStep.MINUS_NUMBERS, None, None, 0.0),
    "three slopes": (PointStep.XIELU, None, 3, 0.0),
    "no second row": (PointStep.PLUS_Y, None, None, 0.0),
    "rows of another number": (PointStep.PLUS_Y, (3, 4), None, 0.0),
    "rows of another width": (PointStep.PLUS_Y, (2, 5), None, 0.0),
    "an unknown step": (PointStep.PLUS_Y + 1, None, None, 1.0),
    "an unknown activation": (activation_step(len(Activation)), None, None, 1.0),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_step_that_misses_something_is_refused_and_nothing_is_written(name: str) -> None:
    step, y, numbers, a = UNFIT[name]
    operands = [None if shape is None else np.ones(shape, np.float32) for shape in (y, numbers)]
    ops, out = CpuOps(None, 1), np.full((2, 4), 7, np.float32)
    for program in (program_of(step), program_of(PointStep.TIMES_A, step)):
        with pytest.raises(BackendError, match="pointwise"):
            ops.pointwise(out, program, None, *operands, a)
    assert (out == 7).all()
    ops.close()


def test_a_program_has_one_to_eight_steps() -> None:
    assert list(steps_of(program_of(*range(1, 9)))) == list(range(1, 9))
    for steps in ((), (PointStep.TIMES_A,) * 9):
        with pytest.raises(ValueError, match="steps"):
            program_of(*steps)
    ops = CpuOps(None, 1)
    for program in (0, -1):
        with pytest.raises(BackendError, match="pointwise was refused"):
            ops.pointwise(np.ones((2, 4), np.float32), program)
    ops.close()


def test_bad_indices_are_refused() -> None:
    ops, one = CpuOps(None, 1), np.ones((1, 1, 16), np.float32)
    table = RopeTable(np.array(random_rows(4, 8)), np.array(random_rows(5, 8)[:4]))
    for position in (-1, 4):
        with pytest.raises(BackendError, match="rope"):
            ops.rope(one.copy(), table, np.array([position], np.int32))
    for row in (-1, 3):
        with pytest.raises(BackendError, match="gather_rows"):
            ops.gather_rows(np.empty((1, 16), np.float32), random_rows(3, 16), np.array([row], np.int32))
    ops.close()
