"""A table of learned positions that is added to the embedding (GPT-2, OPT)."""

from __future__ import annotations

from collections.abc import Callable

from twostroke.models.common.registry import CommonFacts
from twostroke.ops.products.embed import embed
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor, Value
from twostroke.ops.rows.expressions import add


def learned_positions(name: str, facts: CommonFacts, unused: int = 0) -> Callable[[Tracer, Value], Value]:
    """Returns a function that adds the row of each position to the embedding. name: the table's name, without
    ".weight". unused: how many of the table's first rows belong to no position."""
    positions, width = facts.max_positions, facts.hidden_size

    def added(t: Tracer, x: Value) -> Value:
        table = Tensor(f"{name}.weight", (positions + unused, width), rows=(unused, positions + unused))
        return add(x, embed(t.weight("positions", positions, width, (table,)), t.positions, t))

    return added
