"""route: which experts a row meets, and with which weights (Shazeer et al. 2017; Fedus et al. 2022).

    out (T, 2 k) float32 = [weights | numbers] of logits (T, E) float32, E <= 1,024.

numbers: of the k experts with the largest logits, largest first; of equal ones the lower number comes first. They are
stored as float32, which holds whole numbers below 2^24 exactly. weights: softmax over all E logits, of the chosen
experts; where `normalised` is not 0, divided by their sum. A row with a NaN or an infinite logit has k different
numbers and weights that are NaN. One row's result depends on that row alone.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array
from twostroke.program.op import Op, OpCost, Shapes, StoredFormats
from twostroke.program.values import Value

FLOPS_PER_EXPERT = 7
"""A comparison, an exponential (counted as 5) and an addition for each logit."""


def reference(out: F32Array, logits: F32Array, normalised: int) -> None:
    """See the module."""
    chosen_count = out.shape[1] // 2
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :chosen_count]
    with np.errstate(invalid="ignore"):
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float64))
        weights = np.take_along_axis(powers / powers.sum(axis=1, keepdims=True), chosen, axis=1)
    if normalised:
        weights /= weights.sum(axis=1, keepdims=True)
    out[:, :chosen_count], out[:, chosen_count:] = weights, chosen


@dataclass(frozen=True, eq=False, slots=True)
class Route(Op):
    """The k largest of each row's logits."""

    NAME: ClassVar[str] = "route"
    SHAPES: ClassVar[Shapes] = {"out": "T 2C", "logits": "T E"}
    reference = staticmethod(reference)

    out: Value
    logits: Value
    normalised: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """A softmax over the experts."""
        experts = self.logits.width
        return OpCost(per_row=Work(FLOPS_PER_EXPERT * experts, activation_bytes=4 * (experts + self.out.width)))


def route(logits: Value, chosen: int, *, normalised: bool) -> Value:
    """[weights | numbers] of the `chosen` experts of each row."""
    if not 1 <= chosen <= logits.width:
        raise ValueError(f"{chosen} of {logits.width} experts cannot be chosen")
    out = logits.fresh(2 * chosen)
    logits.trace.record(Route(out, logits, int(normalised)))
    return out
