"""How long pieces of image work take here, in encoders and in language models whose image rows see each other. It is
learned from measured pieces, for each kind of work.

The ratios of measured to predicted time differ by kind, because a cost model may be right for products and wrong for
attention. A ratio that was learned from one kind tells nothing about another kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twostroke.engine.scheduler.estimates.cost_correction import LEAST_OF_GUESS, MOST_OF_GUESS, Ratios
from twostroke.types.encode import EncodePace, PieceKind, PieceTime

UNMEASURED = 8.0
"""The factor by which the predicted time of a piece of image work is multiplied until a first piece of the same
PieceKind is measured."""


class PieceTimes:
    """The ratios measured / predicted seconds of the last pieces of image work, by kind (such as products or
    attention). They are bounded to [1/1000, 1000]."""

    def __init__(self) -> None:
        self._kinds: dict[PieceKind, Ratios] = {}

    def learn(self, times: Iterable[PieceTime]) -> None:
        """Learns, for each kind of image work, how much longer pieces take than predicted. times: the pieces that a
        step has computed. A piece that took no time, or was not predicted, is ignored."""
        for each in times:
            if each.predicted_s > 0 and each.seconds > 0:
                ratio = round(min(MOST_OF_GUESS, max(LEAST_OF_GUESS, each.seconds / each.predicted_s)), 6)
                self._kinds.setdefault(each.kind, Ratios(1.0)).add(ratio)

    def pace(self) -> EncodePace:
        """Returns, for each PieceKind, the ratio measured / predicted time that 96% of the last pieces did not exceed;
        UNMEASURED for a kind without measured pieces."""
        seen = self._kinds
        return EncodePace(tuple(seen[kind].high if kind in seen else UNMEASURED for kind in PieceKind))

    def usual_s(self, predicted: Mapping[PieceKind, float]) -> float:
        """Returns the seconds that pieces of image work most likely take together. predicted: their predicted seconds,
        by kind. A kind that was not measured has the median ratio of the others; when no kind was measured, predictions
        count as they are."""
        known = sorted(ratios.usual for ratios in self._kinds.values())
        other = known[len(known) // 2] if known else 1.0
        return sum(
            seconds * (self._kinds[kind].usual if kind in self._kinds else other) for kind, seconds in predicted.items()
        )
