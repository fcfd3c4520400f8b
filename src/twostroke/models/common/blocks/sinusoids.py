"""Positions as sines and cosines that are added to the embedding (Vaswani et al. 2017).

    [sin(p f_0), sin(p f_1), ... | cos(p f_0), cos(p f_1), ...], f_i = theta^(-2 i / width)

No checkpoint holds this table. Every row begins as the row of position 0, and a rotation turns it into the row of its
own position.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.models.common.blocks.same_rows import same_rows
from twostroke.models.common.registry import CommonFacts
from twostroke.ops.attention.rope import rope
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Rope, Value
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import RopeKind, RopeSpec


def sinusoids(facts: CommonFacts, theta: float, ahead: int = 0) -> Callable[[Tracer, Value], Value]:
    """Returns a function that adds the sines and cosines of each position to the rows. ahead: the number that is added
    to each position. The width must be even."""
    width = facts.hidden_size
    spec = RopeSpec(RopeKind.DEFAULT, theta, width, facts.max_positions, back=-ahead, undone=True)
    first = (0.0,) * (width // 2) + (1.0,) * (width // 2)

    def added(t: Tracer, x: Value) -> Value:
        rows = same_rows(t, x, t.constant("position", first))
        return add(x, rope(rows.heads(1), Rope(spec), t.positions).flat())

    return added
