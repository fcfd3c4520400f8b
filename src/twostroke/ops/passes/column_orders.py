"""with_column_orders: the program where matrices are kept with their columns in another order.

A checkpoint may group the columns of a matrix in another order than that in which they are stored (act-order of GPTQ).
Columns of a group are then adjacent only after they are sorted. Such a matrix is kept sorted, and its product gets a
call before it that takes the columns of the input in the same order. The result is the same sum in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from msgspec import Struct

from twostroke.ops.products.linear import Linear
from twostroke.ops.products.take_columns import MOST_COLUMNS, TakeColumns
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Tensor, Value, Vector, Weight
from twostroke.types.spec.formats import WeightFormat


class KeptOrder(Struct, frozen=True):
    """How a matrix is stored with sorted columns. format: the weight format. tensor: the name of the tensor that holds
    the order."""

    format: WeightFormat
    tensor: str


OrderChoice = Callable[[tuple[Tensor, ...]], KeptOrder | None]
"""A function that takes the tensors of a matrix, and returns how the matrix is stored with sorted columns; None for a
matrix that is stored as it is."""


def no_orders(parts: tuple[Tensor, ...]) -> KeptOrder | None:
    """Returns None for every matrix: no matrix is sorted."""
    return None


def with_column_orders(program: Program, choose: OrderChoice) -> Program:
    """Returns the program in which matrices that `choose` names are stored with sorted columns, and a take_columns
    before each of their products sorts the inputs. A matrix that another op reads too stays unsorted."""
    sorted_weights = _sorted(program, choose)
    if not sorted_weights:
        return program
    calls: list[Op] = []
    for call in program.calls:
        weight = sorted_weights.get(call.weight) if isinstance(call, Linear) else None
        if not isinstance(call, Linear) or weight is None or weight.order is None:
            calls.append(call)
            continue
        before = call.x.fresh(call.x.width)
        calls.append(TakeColumns(before, call.x, weight.order))
        calls.append(Linear(call.out, before, weight))
    return Program.of(tuple(calls), program.logits)


def untaken(program: Program) -> Mapping[Value, Value]:
    """Returns for each input that take_columns has sorted the unsorted value that it was made from."""
    return {call.out: call.x for call in program.calls if isinstance(call, TakeColumns)}


def _sorted(program: Program, choose: OrderChoice) -> dict[Weight, Weight]:
    others = {
        item
        for call in program.calls
        if not isinstance(call, Linear)
        for item in call.operands()
        if isinstance(item, Weight)
    }
    found = {}
    for weight in program.weights:
        kept = choose(weight.parts) if weight not in others and weight.columns <= MOST_COLUMNS else None
        if kept is not None:
            order = Vector(f"{weight.key}:order", weight.columns, (Tensor(kept.tensor, (weight.columns,)),))
            found[weight] = replace(weight, stored=kept.format, order=order)
    return found
