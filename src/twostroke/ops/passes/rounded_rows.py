"""with_rounded_rows: the program of a model whose products were trained with inputs of 8 bits (BitNet b1.58).

The input of each chosen product is rounded row by row, in every format of its weights.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.ops.products.linear import Linear
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value, Weight
from twostroke.ops.rows.round_rows import RoundRows
from twostroke.types.errors import UnsupportedModel


def with_rounded_rows(program: Program, chosen: Callable[[Weight], bool]) -> Program:
    """Returns the program with the calls added. Products of one value share its rounded form. Raises UnsupportedModel
    where a chosen matrix is read by an op that is not a product of rows, such as the experts."""
    calls: list[Op] = []
    rounded: dict[Value, Value] = {}
    for call in program.calls:
        mine = [item for item in call.operands() if isinstance(item, Weight) and chosen(item)]
        if not mine:
            calls.append(call)
            continue
        if not isinstance(call, Linear):
            raise UnsupportedModel(
                f"{mine[0].parts[0].name} is quantized by BitNet's rule.",
                why=f"The inputs of {call.NAME} cannot be rounded as that rule wants it.",
                fix="Use a model without experts, or one that is quantized in another way.",
            )
        if call.x not in rounded:
            rounded[call.x] = call.x.fresh(call.x.width)
            calls.append(RoundRows(rounded[call.x], call.x))
        calls.append(Linear(call.out, rounded[call.x], call.weight))
    return Program.of(tuple(calls), program.logits, program.given, program.kept)
