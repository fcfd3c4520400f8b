"""Image rows as bytes, for replicas that encode for each other. A replica also encodes between its own steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twostroke.cost.encode_cost import EncodeCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.estimates.piece_times import PieceTimes
from twostroke.engine.scheduler.limits.image_turns import ImageTurns
from twostroke.runner.images.image_encoder import ImageRows, KeptRows
from twostroke.types.images import EncodedTiles, ImageTile, keys_of
from twostroke.types.request import Request

Told = Callable[[EncodedTiles], None]
"""A function that is called after each piece of an image's encoding, with a report of what was encoded."""


class EncodedRows:
    """Stores the image rows of an encoder, and hands them out as bytes to other replicas. Satisfies
    replica.row_feeds.RowStore. width: the number of floats of a row. cost: predicts the time of each piece of an
    encode. times: the ratio of real to predicted times, learned from earlier pieces. told: gets a report after pieces
    were encoded. clock: returns seconds."""

    def __init__(
        self, kept: KeptRows, width: int, cost: EncodeCost, clock: Callable[[], float], times: PieceTimes, told: Told
    ) -> None:
        self._kept, self._width, self._cost, self._clock = kept, width, cost, clock
        self._times, self._told = times, told

    @classmethod
    def alone(cls, kept: KeptRows, width: int, cost: EncodeCost, clock: Callable[[], float]) -> EncodedRows:
        """Returns the store of image rows for an encoder without a language model in its process, where no scheduler
        needs the reports."""
        times = PieceTimes()
        return cls(kept, width, cost, clock, times, lambda made: times.learn(made.times))

    @property
    def row_bytes(self) -> int:
        return 4 * self._width

    def has(self, key: int) -> bool:
        return self._kept.find(key) is not None

    def read(self, key: int, first: int, count: int) -> bytes | None:
        rows = self._kept.find(key)
        return None if rows is None else rows[first : first + count].tobytes()

    def keep(self, key: int, data: bytes) -> None:
        self._kept.put(key, np.frombuffer(data, np.float32).reshape(-1, self._width))
        self._told(self._kept.take(0.0))

    def work(self, tile: ImageTile, seconds: float) -> bool:
        """Encodes the next pieces of a tile: those that are predicted to take `seconds` together. Returns whether the
        tile's encode has ended. An encode that fails has ended too; the request that needs its rows fails later by
        itself."""
        begin_s = self._clock()
        try:
            over = self._kept.work(tile, seconds, self._times.pace())
        except Exception:
            self._kept.give_up(tile)
            over = True
        self._told(self._kept.take(self._clock() - begin_s))
        return over

    def predicted_s(self, tile: ImageTile) -> float:
        return self._times.usual_s(self._cost.tile_parts(tile))

    def row_s(self, rows: int) -> float:
        """Returns the predicted seconds for one image row, in a tile of `rows` rows."""
        return self._times.usual_s(self._cost.walk(rows).seconds_by_kind()) / rows

    def missing(self, request: Request) -> list[ImageTile]:
        return [span.tile for span in request.images if not self.has(span.tile.key)]


class SharedRows(EncodedRows):
    """Image rows of an encoder in the same process as a language model. turns: the part of the scheduler that decides
    which tile is encoded next; it gets a report of each encode. cache: tells how many tokens at the beginning of a
    prompt are in the prefix cache. An image among these tokens needs no rows."""

    def __init__(
        self, images: ImageRows, cost: EncodeCost, turns: ImageTurns, cache: CacheManager, clock: Callable[[], float]
    ) -> None:
        super().__init__(images.kept, images.width, cost, clock, turns.times, lambda made: turns.done(made, ()))
        self._cache = cache

    def missing(self, request: Request) -> list[ImageTile]:
        tokens = (*request.prompt_token_ids, *request.resumed_token_ids)
        matched = self._cache.match(request.cache_salt, keys_of(tokens, request.images))
        cached = self._cache.spared_tokens(matched, len(tokens))
        return [span.tile for span in request.images if span.end > cached and not self.has(span.tile.key)]
