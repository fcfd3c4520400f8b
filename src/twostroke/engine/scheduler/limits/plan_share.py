"""How many of the decoding sequences one plan of a pipeline computes: an even share of them when this is predicted to
pay."""

from __future__ import annotations

from twostroke.cost.pipeline import sharing_pays
from twostroke.cost.shape import Segment, StepCost
from twostroke.engine.scheduler.sequence import Sequence

POSITIONS_APART = 4096
"""PredictedShare predicts again when the sum of the sequences' positions has changed by about this number."""


class PredictedShare:
    """Decides how many of the decoding sequences one plan of a pipeline computes. It is all of them, or one in `plans`
    where dividing them among the plans is predicted to be faster. Satisfies `scheduler.under_way.Share`. cost: predicts
    the time of a step through all stages. plans: the number of plans that are in flight at once."""

    def __init__(self, cost: StepCost, plans: int) -> None:
        self._cost, self._plans = cost, plans
        self._known: tuple[int, int] = (0, 0)
        self._pays = False

    def __call__(self, decoding: list[Sequence]) -> int:
        known = (len(decoding), sum(len(each.known) for each in decoding) // POSITIONS_APART)
        if known != self._known:
            streams = [Segment.decode(len(each.known) - 1, each.request.adapter) for each in decoding]
            self._known, self._pays = known, sharing_pays(self._cost, streams, self._plans)
        return -(-len(decoding) // self._plans) if self._pays else len(decoding)
