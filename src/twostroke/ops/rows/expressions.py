"""The elementwise operations that model files use. Each function records one call of `pointwise`. All but `clip_rows`
change their first operand in place, and return the changed value."""

from __future__ import annotations

import numpy as np

from twostroke.ops.program.op import Op
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.pointwise import PointStep, Pointwise, activation_step, is_made_by, program_of


def _over(x: Value, *steps: int, numbers: Vector | None = None, a: float = 0.0, b: float = 0.0) -> Value:
    """Records a call that changes x in place by the elementwise operations `steps` (codes of `PointStep`), one after
    the other, and returns the changed value. numbers, a, b: the vector and the two constants that these operations
    use."""
    out = x.written()
    x.trace.record(Pointwise(out, program_of(*steps), None, None, numbers, a, b))
    return out


def add(residual: Value, x: Value) -> Value:
    """Records residual + x, which is written over residual."""
    out = residual.written()
    residual.trace.record(Pointwise(out, program_of(PointStep.PLUS_Y), None, x.flat()))
    return out


def added(call: Op) -> Value | None:
    """Returns the value y of a call that only adds y to a value in place; None for other calls."""
    return call.y if isinstance(call, Pointwise) and call.x is None and is_made_by(call, PointStep.PLUS_Y) else None


def activate(x: Value, activation: Activation) -> Value:
    """Records the activation of each element of x, which is written over x."""
    return _over(x, activation_step(activation))


def clamp(x: Value, limit: float) -> Value:
    """Records x limited to [-limit, limit], which is written over x. Returns x itself where the limit is 0."""
    return x if limit == 0 else _over(x.flat(), PointStep.WITHIN_A, a=limit)


def clip_rows(x: Value, bounds: Vector) -> Value:
    """Records x limited to [bounds[0], bounds[1]] as a new value; x itself stays as it is. Raises ValueError for
    another number of bounds."""
    if bounds.length != 2:
        raise ValueError(f"there are {bounds.length} bounds, there must be two")
    x = x.flat()
    out = x.fresh(x.width)
    x.trace.record(Pointwise(out, program_of(PointStep.BETWEEN_NUMBERS), x, None, bounds))
    return out


def scale(x: Value, factor: float) -> Value:
    """Records x * factor, which is written over x. Returns x itself where the factor is 1."""
    return x if factor == 1 else _over(x, PointStep.TIMES_A, a=factor)


def is_scaled(call: Op) -> bool:
    """Returns whether a call multiplies all elements by one number, and does nothing else."""
    return is_made_by(call, PointStep.TIMES_A)


def scale_columns(x: Value, weight: Vector) -> Value:
    """Records x * weight, which is written over x. Raises ValueError for a weight that has neither one number nor one
    for each column."""
    if weight.length not in (1, x.width):
        raise ValueError(f"{weight.length} numbers do not fit {x.width} columns")
    return _over(x, PointStep.TIMES_NUMBERS, numbers=weight)


def shift_columns(x: Value, weight: Vector) -> Value:
    """Records x - weight, which is written over x. weight: one number for each column. Raises ValueError for another
    length."""
    if weight.length != x.width:
        raise ValueError(f"{weight.length} numbers do not fit {x.width} columns")
    return _over(x, PointStep.MINUS_NUMBERS, numbers=weight)


def soft_cap(x: Value, cap: float) -> Value:
    """Records cap * tanh(x / cap), which is written over x. Returns x itself where the cap is 0. Raises ValueError for
    a cap below 0."""
    if cap == 0:
        return x
    if not cap > 0:
        raise ValueError(f"a cap must not be below 0, it is {cap}")
    inverse = float(np.float32(1) / np.float32(cap))
    return _over(x, PointStep.TIMES_A, PointStep.TANH, PointStep.TIMES_B, a=inverse, b=cap)


def xielu(x: Value, numbers: Vector) -> Value:
    """Records the xIELU activation with four numbers of the checkpoint (Huang and Schlag 2024), which is written over
    x. Raises ValueError for another count of numbers."""
    if numbers.length != 4:
        raise ValueError(f"{numbers.length} numbers, there must be four")
    return _over(x, PointStep.XIELU, numbers=numbers)
