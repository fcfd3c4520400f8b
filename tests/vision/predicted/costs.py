"""Costs of encoders with made-up times."""

from __future__ import annotations

from collections.abc import Sequence

from tests.scheduler.fakes import LineCost
from twostroke.cost.encode_cost import EncodeCost, PartCosts
from twostroke.cost.shape import Bound, PartPrediction, StepCost, StepPrediction
from twostroke.cost.shape import Part as CostPart
from twostroke.cost.work import Work


class RowCost(LineCost):
    """A LineCost whose seconds are those of products."""

    def predict(self, segments: Sequence[CostPart]) -> StepPrediction:
        return StepPrediction((PartPrediction("weights", self.seconds(segments), Work(), Bound.ARITHMETIC),))


class PartsCost(RowCost):
    """row_s for each row of products, and pair_s for each pair of a row and a position that it sees."""

    def __init__(self, row_s: float, pair_s: float) -> None:
        super().__init__(0.0, row_s, 0.0)
        self.pair_s = pair_s

    def predict(self, segments: Sequence[CostPart]) -> StepPrediction:
        pairs = sum(each.num_tokens * (each.start + (each.num_tokens + 1) / 2) for each in segments)
        attention = PartPrediction("attention", self.pair_s * pairs, Work(), Bound.ARITHMETIC)
        return StepPrediction((*super().predict(segments).parts, attention))


def encode_cost_of(cost: StepCost, merge: int, layers: int = 1) -> EncodeCost:
    """An encoder whose parts all have this cost. Attention takes as long as it does in `cost`."""
    return EncodeCost(PartCosts(cost, cost, cost), merge, layers)
