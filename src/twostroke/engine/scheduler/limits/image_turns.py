"""When tiles of images are encoded: next to streams piece by piece, and a prompt waits in front of a tile until then.

    num_tokens = turns.limit(sequence, num_tokens, step)     before the other limits: it stops this sequence alone
    plan.encode = turns.take()                               the tile that the step works on
    turns.done(result.encoded, result.encode_s, sequences)

Without streams a tile is encoded in the step that computes its positions, one tile of a sequence in one step. What is
ready is what was encoded lately: where its rows are gone, the step encodes it again and takes longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twostroke.cost.encode_cost import EncodeCost
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.images import ImageTile
from twostroke.types.plan import Role

MOST_READY = 4096
"""Tiles that are remembered as encoded."""


class ImageTurns:
    """Satisfies `scheduler.limits.limits.Limiter`. The first sequence that waits for a tile has the turn.

    cost: predicts encodes, corrected by what the last ones took; None where there is no prediction.
    """

    def __init__(self, cost: EncodeCost | None = None) -> None:
        self.cost = cost
        self._ready: dict[int, None] = {}
        self._next: ImageTile | None = None
        self._predicted: dict[int, float] = {}
        self._open_s, self._factor = 0.0, 1.0

    def arrived(self, sequence: Sequence) -> None:
        """Predict the encodes of a sequence that is queued now."""
        if self.cost is not None and sequence.request.images:
            for tile in {span.tile.key: span.tile for span in sequence.request.images}.values():
                if tile.key not in self._ready and tile.key not in self._predicted:
                    self._predicted[tile.key] = self.cost.seconds(tile.rows)
            self._predict(sequence)

    def _predict(self, sequence: Sequence) -> None:
        keys = {span.tile.key for span in sequence.request.images if span.end > sequence.computed}
        sequence.encode_s = self._factor * sum(self._predicted.get(key, 0.0) for key in keys)

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Up to the first tile that is not ready; with that tile where nobody waits for a token."""
        images = sequence.request.images
        if not images or sequence.role is Role.DECODE:
            return wanted_tokens
        start, end = sequence.computed, sequence.computed + wanted_tokens
        for span in images:
            if span.end <= start or span.tile.key in self._ready:
                continue
            if span.first >= end:
                break
            if not any(each.role is Role.DECODE for each, _ in step.parts):
                return min(end, span.end) - start
            if self._next is None:
                self._next = span.tile
            return max(0, span.first - start)
        return wanted_tokens

    def take(self) -> ImageTile | None:
        """The tile to work on in the step that is planned now; forgotten here."""
        found, self._next = self._next, None
        return found

    def done(self, keys: Collection[int], seconds: float, waiting: Iterable[Sequence]) -> None:
        """Tiles with these keys were encoded; all pieces of a step took so long. waiting: those that may show them."""
        self._open_s += seconds
        predicted_s = sum(self._predicted.pop(key, 0.0) for key in keys)
        if predicted_s and self._open_s:
            self._factor += (self._open_s / predicted_s - self._factor) / 2
            self._open_s = 0.0
        for key in keys:
            self._ready.pop(key, None)
            self._ready[key] = None
        while len(self._ready) > MOST_READY:
            del self._ready[next(iter(self._ready))]
        while len(self._predicted) > MOST_READY:
            del self._predicted[next(iter(self._predicted))]
        for sequence in waiting if keys and self.cost is not None else ():
            if sequence.request.images:
                self._predict(sequence)
