"""with_column_orders: the products that get a call before them, and the inputs that adapters see."""

from __future__ import annotations

from twostroke.ops.passes.column_orders import KeptOrder, with_column_orders
from twostroke.ops.passes.with_adapters import AdapterSpec, with_adapters
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import Linear, linear
from twostroke.ops.products.low_rank import LowRank
from twostroke.ops.products.take_columns import TakeColumns
from twostroke.ops.program.check import check
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.spec.formats import BF16


def tied() -> Program:
    """A program with a table, one product, and the table again as the head."""
    trace = Tracer()
    table = trace.matrix("embedding", {"embed": 13}, 8)
    x = embed(table, trace.token_ids, trace)
    y = linear(x, trace.matrix("up", {"up": 8}, 8))
    return trace.program(linear(gather_rows(y, trace.logit_rows), table))


def every(parts: tuple[Tensor, ...]) -> KeptOrder:
    return KeptOrder(BF16, parts[0].name + ".order")


def test_nothing_chosen_changes_nothing():
    program = tied()
    assert with_column_orders(program, lambda parts: None) is program


def test_a_matrix_that_another_op_reads_stays():
    made = with_column_orders(tied(), every)
    check(made)
    assert [call.NAME for call in made.calls] == ["embed", "take_columns", "linear", "gather_rows", "linear"]
    take, product = made.calls[1:3]
    assert isinstance(take, TakeColumns) and isinstance(product, Linear)
    assert product.x is take.out and product.weight.order is take.order and product.weight.stored == BF16
    assert [part.name for part in take.order.parts] == ["up.weight.order"] and take.order in made.vectors
    assert [weight.order is None for weight in made.weights] == [True, False]


def test_adapters_see_the_columns_as_they_were():
    made = with_column_orders(tied(), every)
    adapted = with_adapters(made, AdapterSpec(2, {"up": 3})).program
    added = next(call for call in adapted.calls if isinstance(call, LowRank))
    take = next(call for call in adapted.calls if isinstance(call, TakeColumns))
    assert added.x is take.x
