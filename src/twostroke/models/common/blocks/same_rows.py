"""Rows that are all the same: a vector of the checkpoint, or a constant, as a value.

A norm whose weights are zeros gives its bias for every row. So a vector can be added to rows with the existing ops.
"""

from __future__ import annotations

from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows.layer_norm import layer_norm


def same_rows(t: Tracer, like: Value, numbers: Vector) -> Value:
    """Returns a new value with `numbers` (D,) in each row. like (T, D): any value with the wanted number of rows. Only
    its shape matters, but its numbers must be finite. Raises ValueError where the width of `like` is not D."""
    if numbers.length != like.width:
        raise ValueError(f"{numbers.length} numbers for rows of {like.width}")
    return layer_norm(like.flat(), t.constant("zeros", (0.0,) * numbers.length), numbers, 1.0)
