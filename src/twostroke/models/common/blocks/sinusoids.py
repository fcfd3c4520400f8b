"""Positions as sines and cosines that are added to the embedding (Vaswani et al. 2017).

    [sin(p f_0), sin(p f_1), ... | cos(p f_0), cos(p f_1), ...], f_i = theta^(-2 i / width)

No checkpoint holds this table. A norm whose weights are zeros gives its row for position 0, a rotation of
that row the one of each position.

Knows: the ops.
Must not know: any one architecture.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.models.common.registry import CommonFacts
from twostroke.ops.attention.rope import rope
from twostroke.ops.rows.add import add
from twostroke.ops.rows.layer_norm import layer_norm
from twostroke.program.trace import Tracer
from twostroke.program.values import Rope, Value
from twostroke.spec.rope import RopeKind, RopeSpec


def sinusoids(facts: CommonFacts, theta: float, ahead: int = 0) -> Callable[[Tracer, Value], Value]:
    """ahead: what is added to each position. The width must be even."""
    width = facts.hidden_size
    spec = RopeSpec(RopeKind.DEFAULT, theta, width, facts.max_positions, back=-ahead, undone=True)
    first = (0.0,) * (width // 2) + (1.0,) * (width // 2)

    def added(t: Tracer, x: Value) -> Value:
        nothing, row = t.constant("zeros", (0.0,) * width), t.constant("position", first)
        rows = layer_norm(x, nothing, row, 1.0)
        return add(x, rope(rows.heads(1), Rope(spec), t.positions).flat())

    return added
