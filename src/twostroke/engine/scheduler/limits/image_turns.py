"""When tiles of images are encoded: piece by piece while streams run, and a prompt waits in front of a tile until the
tile is ready.

    num_tokens = turns.limit(sequence, num_tokens, step, limiters)     before other limits: it cuts this sequence only
    turn = turns.take(step, limiters)        the tile that the step works on, and for how many seconds
    turns.done(result.encodes, sequences)

A step works on a tile for the seconds that the limiters leave (`left_s`), so no gap between tokens becomes longer than
the limiters allow. When no sequence decodes, a tile is encoded in the step that computes its positions. One step
encodes one tile of a sequence. A tile is ready when it was encoded lately and its rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Positions
from math import inf

from twostroke.cost.encode_cost import EncodeCost
from twostroke.engine.scheduler.estimates.piece_times import PieceTimes
from twostroke.engine.scheduler.limits.limits import Limiter, StepLoad, time_left_s
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.encode import PieceKind
from twostroke.types.images import EncodedTiles, ImageTile
from twostroke.types.plan import NO_TURN, EncodeTurn, Role

MOST_READY = 4096
"""How many tiles are remembered as encoded."""
UNBOUND_S = 0.1
"""The most seconds of an encode in a step with streams when no limit bounds the time of the step."""
SHARE = 0.5
"""The share of the step's remaining seconds that is kept for an encode, and not given to prompts that are planned after
it."""


class ImageTurns:
    """Works on one tile of an image at a time: the tile for which a sequence waited first, until it is encoded.

    cost: predicts the time of encodes; None when there is no prediction. times: corrects the predictions by measured
    pieces.
    """

    def __init__(self, cost: EncodeCost | None = None) -> None:
        self.cost, self.times = cost, PieceTimes()
        self._ready: dict[int, None] = {}
        self._open: ImageTile | None = None
        self._predicted: dict[int, Mapping[PieceKind, float]] = {}

    def arrived(self, sequence: Sequence) -> None:
        """Predict the encodes of a sequence that is queued now."""
        if self.cost is not None and sequence.request.images:
            for tile in {span.tile.key: span.tile for span in sequence.request.images}.values():
                if tile.key not in self._ready and tile.key not in self._predicted:
                    self._predicted[tile.key] = self.cost.tile_parts(tile)
            self._predict(sequence)

    def _predict(self, sequence: Sequence) -> None:
        keys = {span.tile.key for span in sequence.request.images if span.end > sequence.computed}
        sequence.encode_s = sum(self.times.usual_s(self._predicted.get(key, {})) for key in keys)

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad, limiters: Positions[Limiter] = ()) -> int:
        """Returns the tokens up to the first tile that is not ready. When no sequence decodes, the tile's own tokens
        are included, since the step then encodes the whole tile."""
        images = sequence.request.images
        if not images or sequence.role is Role.DECODE:
            return wanted_tokens
        start, end = sequence.computed, sequence.computed + wanted_tokens
        for span in images:
            if span.end <= start or span.tile.key in self._ready:
                continue
            if span.first >= end:
                break
            if not step.streams():
                return min(end, span.end) - start
            if self._open is None:
                self._open = span.tile
                self.reserve(step, limiters)
            return max(0, span.first - start)
        return wanted_tokens

    def reserve(self, step: StepLoad, limiters: Positions[Limiter]) -> None:
        """Keep a share of the step's time for the tile that is being encoded. A scheduler calls this once all decoding
        sequences are planned, so that prompts cannot fill every step."""
        if self._open is not None:
            step.encode_s = max(0.0, SHARE * min(time_left_s(step, limiters), UNBOUND_S / SHARE))

    def take(self, step: StepLoad, limiters: Positions[Limiter]) -> EncodeTurn:
        """Returns the tile to work on in the step that is planned now, and for how many seconds."""
        if self._open is None:
            return NO_TURN
        left_s = time_left_s(step, limiters)
        return EncodeTurn(self._open, UNBOUND_S if left_s == inf else max(0.0, left_s), self.times.pace())

    def done(self, encodes: EncodedTiles, waiting: Iterable[Sequence]) -> None:
        """Note that pieces of tiles were computed, or rows were dropped. waiting: the sequences that may show these
        tiles."""
        self.times.learn(encodes.times)
        for key in encodes.keys:
            self._predicted.pop(key, None)
            self._ready.pop(key, None)
            self._ready[key] = None
        for key in encodes.dropped:
            self._ready.pop(key, None)
        if self._open is not None and self._open.key in encodes.keys:
            self._open = None
        while len(self._ready) > MOST_READY:
            del self._ready[next(iter(self._ready))]
        while len(self._predicted) > MOST_READY:
            del self._predicted[next(iter(self._predicted))]
        for sequence in waiting if encodes.keys and self.cost is not None else ():
            if sequence.request.images:
                self._predict(sequence)
