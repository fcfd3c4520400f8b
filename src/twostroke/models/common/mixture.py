"""The feed-forward block of several experts, of which a router chooses some for each token (Shazeer et al. 2017).

Knows: the ops, that published checkpoints hold one tensor for each expert and matrix.
Must not know: config fields, how families call their tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.dense import FeedForwardText
from twostroke.ops.add import add
from twostroke.ops.experts import experts
from twostroke.ops.linear import linear
from twostroke.ops.route import route
from twostroke.program.trace import Tracer
from twostroke.program.values import Tensor, Value, Weight

MOST_EXPERTS = 1024
"""What the ops have room for."""


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Names of tensors. bank: what comes before an expert's number; gate, up, down: what comes after it."""

    router: str
    bank: str
    gate: str
    up: str
    down: str


@dataclass(frozen=True, slots=True)
class Mixture:
    """The shape of a block. chosen: experts of one token. inner_size: of one expert.

    normalised: the weights of the chosen experts add up to one.
    """

    count: int
    chosen: int
    hidden_size: int
    inner_size: int
    normalised: bool
    names: ExpertNames


def mixture(shape: Mixture) -> FeedForwardText:
    """The block: the sum of the chosen experts, added to the residual."""
    names, hidden, inner = shape.names, shape.hidden_size, shape.inner_size

    def block(t: Tracer, residual: Value, h: Value) -> Value:
        logits = linear(h, t.matrix("router", {names.router: shape.count}, hidden))
        routes = route(logits, shape.chosen, normalised=shape.normalised)
        both = _bank(t, shape, "gate_up", (names.gate, names.up), inner, hidden)
        down = _bank(t, shape, "down", (names.down,), hidden, inner)
        return add(residual, experts(h, routes, both, down))

    return block


def _bank(t: Tracer, shape: Mixture, role: str, names: tuple[str, ...], rows: int, columns: int) -> Weight:
    parts = tuple(
        Tensor(t.name(f"{shape.names.bank}.{expert}.{name}.weight"), (rows, columns))
        for expert in range(shape.count)
        for name in names
    )
    return t.weight(role, len(names) * rows, columns, parts, experts=shape.count)
