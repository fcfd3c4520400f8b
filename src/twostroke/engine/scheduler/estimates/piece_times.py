"""How long pieces of encodes take here, learned from those that were measured, for each kind of piece.

The ratios of measured to predicted time differ by kind, because a cost model may be right for products and wrong for
attention. A ratio that was learned from one kind tells nothing about another kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twostroke.engine.scheduler.estimates.cost_correction import LEAST_OF_GUESS, MOST_OF_GUESS, Ratios
from twostroke.types.encode import EncodePace, PieceKind, PieceTime

UNMEASURED = 8.0
"""A kind of which no piece was measured counts as if it took this many times its predicted time."""


class PieceTimes:
    """The ratios measured / predicted of the last pieces, by kind. They are bounded to [1/1000, 1000]."""

    def __init__(self) -> None:
        self._kinds: dict[PieceKind, Ratios] = {}

    def learn(self, times: Iterable[PieceTime]) -> None:
        """Note pieces that were computed. A piece that took no time, or was not predicted, is ignored."""
        for each in times:
            if each.predicted_s > 0 and each.seconds > 0:
                ratio = round(min(MOST_OF_GUESS, max(LEAST_OF_GUESS, each.seconds / each.predicted_s)), 6)
                self._kinds.setdefault(each.kind, Ratios(1.0)).add(ratio)

    def pace(self) -> EncodePace:
        """Returns how many times its predicted time the next piece of each kind may take: 96% of the last pieces were
        not slower."""
        seen = self._kinds
        return EncodePace(tuple(seen[kind].high if kind in seen else UNMEASURED for kind in PieceKind))

    def usual_s(self, predicted: Mapping[PieceKind, float]) -> float:
        """Returns the seconds that pieces most likely take. predicted: the predicted seconds of each kind. A kind that
        was not measured has the median ratio of the others; when no kind was measured, predictions count as they are.
        """
        known = sorted(ratios.usual for ratios in self._kinds.values())
        other = known[len(known) // 2] if known else 1.0
        return sum(
            seconds * (self._kinds[kind].usual if kind in self._kinds else other) for kind, seconds in predicted.items()
        )
