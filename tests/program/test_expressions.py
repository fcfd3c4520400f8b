"""The expressions that models write are programs of `pointwise` with the meaning of their names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import (
    activate,
    add,
    added,
    clamp,
    clip_rows,
    is_scaled,
    scale,
    scale_columns,
    shift_columns,
    soft_cap,
    xielu,
)
from twostroke.ops.rows.pointwise import Pointwise

X = np.array([[-3.0, -0.5, -0.0, 0.25, 1.5, 40.0]], np.float32)
EACH = tuple(float(number) for number in range(1, 7))
Build = Callable[[Tracer, Value], Value]
EXPRESSIONS: dict[str, tuple[Build, np.ndarray]] = {
    "activate": (lambda t, x: activate(x, Activation.RELU2), np.maximum(X, 0) ** 2),
    "clamp": (lambda t, x: clamp(x, 0.5), np.clip(X, -0.5, 0.5)),
    "clip_rows": (lambda t, x: clip_rows(x, t.constant("n", (-1.0, 0.125))), np.clip(X, -1, 0.125)),
    "scale": (lambda t, x: scale(x, -2.0), X * -2),
    "scale_columns": (lambda t, x: scale_columns(x, t.constant("n", EACH)), X * np.float32(EACH)),
    "scale_columns by one": (lambda t, x: scale_columns(x, t.constant("n", (0.5,))), X / 2),
    "shift_columns": (lambda t, x: shift_columns(x, t.constant("n", EACH)), X - np.float32(EACH)),
    "soft_cap": (lambda t, x: soft_cap(x, 2.0), 2 * np.tanh(X / 2)),
    "xielu": (
        lambda t, x: xielu(x, t.constant("n", (0.0, 0.0, 0.5, -1e-6))),
        np.where(X > 0, np.log(2) * X**2, (0.5 + np.log(2)) * (np.expm1(np.minimum(X, -1e-6)) - X)) + X / 2,
    ),
}


def traced(build: Build) -> tuple[Value, Value, tuple[Pointwise, ...]]:
    """A given value, the result of the expression, and its calls."""
    t = Tracer()
    x = t.given(X.shape[1])
    out = build(t, x)
    calls = t.program(out).calls
    assert all(isinstance(call, Pointwise) for call in calls)
    return x, out, calls  # type: ignore[return-value]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_one_call_with_its_meaning(name: str) -> None:
    build, wanted = EXPRESSIONS[name]
    x, out, (call,) = traced(build)
    result = np.full_like(X, 7) if call.x is x else X.copy()
    assert (out.base is None) == (call.x is x) and (out.changed or name == "clip_rows")
    numbers = None if call.numbers is None else np.array(call.numbers.numbers, np.float32)
    call.reference(result, call.program, X if call.x is x else None, None, numbers, call.a, call.b)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_a_sum_and_a_scale_are_known_again() -> None:
    t = Tracer()
    first, second = t.given(6), t.given(6)
    calls = t.program(scale(add(first, second), 3.0)).calls
    assert [added(call) for call in calls] == [second, None] and [is_scaled(call) for call in calls] == [False, True]


def test_what_changes_nothing_is_no_call() -> None:
    for build in (lambda t, x: scale(x, 1.0), lambda t, x: clamp(x, 0.0), lambda t, x: soft_cap(x, 0.0)):
        x, out, calls = traced(build)
        assert out is x and calls == ()


@pytest.mark.parametrize(
    "build",
    [
        lambda t, x: scale_columns(x, t.constant("n", (1.0, 2.0))),
        lambda t, x: shift_columns(x, t.constant("n", (1.0,))),
        lambda t, x: clip_rows(x, t.constant("n", EACH)),
        lambda t, x: xielu(x, t.constant("n", EACH)),
        lambda t, x: soft_cap(x, -1.0),
        lambda t, x: soft_cap(x, float("nan")),
    ],
)
def test_what_does_not_fit_is_refused(build: Build) -> None:
    with pytest.raises(ValueError, match=r"number|bounds|cap"):
        traced(build)
