"""with_first_rows: the program whose products know the positions of rows, for models that read a text in order.

The first rows of a text have activations many times larger than those of other rows, and every later row reads their K
and V. So their rounding errors reach all rows. With integer weights, a product therefore rounds these few rows twice:
the second int8 code holds what the first one lost (ADR 68).

Apply this pass to the program that the model file traced, and fuse afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.products.linear import Linear
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import POSITIONS, Size


def with_first_rows(program: Program) -> Program:
    """Returns the program in which each product of all rows gets the rows' positions. With them, a product can round
    the activations of a text's first rows twice: a second int8 code holds what the first code loses. Products of logit
    rows stay as they are, because no later row reads their results."""
    calls = tuple(
        replace(call, positions=POSITIONS) if isinstance(call, Linear) and call.out.rows is Size.TOKENS else call
        for call in program.calls
    )
    return Program.of(calls, program.logits, program.given, program.kept)
