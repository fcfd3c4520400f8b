"""Rows that are all the same: a vector of the checkpoint, or a constant, as a value.

A norm whose weights are zeros gives its bias for every row. So a vector can be added to rows by the ops that there are.
"""

from __future__ import annotations

from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows.layer_norm import layer_norm


def same_rows(t: Tracer, like: Value, numbers: Vector) -> Value:
    """A new value with `numbers` (D,) in each row. like (T, D): says how many rows there are; its content, which must
    be finite, does not count. Raises ValueError where it has another width."""
    if numbers.length != like.width:
        raise ValueError(f"{numbers.length} numbers for rows of {like.width}")
    return layer_norm(like.flat(), t.constant("zeros", (0.0,) * numbers.length), numbers, 1.0)
