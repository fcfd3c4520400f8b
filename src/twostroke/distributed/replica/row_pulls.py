"""Fetches the image rows of requests from a replica that encodes for others. Rows that do not come are encoded here.

    begin(link_id, work, masks) -> whether the request waits
    asks                        the questions to send, each with its replica and the predicted seconds of encoding here
    came(number, answer, found) -> requests that wait no longer; an answer of None means that none will come
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from twostroke.distributed.replica.page_feeds import LinkId
from twostroke.distributed.replica.row_feeds import RowStore, rows_digest
from twostroke.distributed.wire.frames import Assignment, PageSource, RowsAsked, RowsSent
from twostroke.distributed.wire.translate import wire_key
from twostroke.types.grammar import TokenMask
from twostroke.types.images import ImageTile


@dataclass(eq=False, slots=True)
class _Fetch:
    """The fetch of one tile's image rows. data: the rows that have arrived."""

    number: int
    source: PageSource
    tile: ImageTile
    data: bytearray = field(default_factory=bytearray)


@dataclass(eq=False, slots=True)
class WaitingRequest:
    """A request that waits for encoded image rows. keys: the tiles whose rows are missing."""

    link_id: LinkId
    work: Assignment
    masks: Sequence[TokenMask]
    keys: set[int]


class RowPulls:
    """Fetches encoded image rows for this replica's requests from a replica that encodes. Only one thread at a time may
    use it. store: None where images are not read. numbers: an iterator of numbers that no other question of this
    replica has. asks: the questions that the caller sends.

    The rows of a tile are fetched once, however many requests wait for them.
    """

    def __init__(self, store: RowStore | None, numbers: Iterator[int]) -> None:
        self.asks: deque[tuple[PageSource, RowsAsked, float]] = deque()
        self._store, self._next = store, numbers
        self._fetches: dict[int, _Fetch] = {}  # the key is that of the tile
        self._waiting: list[WaitingRequest] = []
        self.received_bytes = 0

    def __len__(self) -> int:
        """The number of requests that wait for image rows."""
        return len(self._waiting)

    def begin(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> bool:
        """Begins to fetch the image rows of a request. Returns False where there is nothing to fetch, so that the
        caller queues the request at once."""
        store, source = self._store, work.rows_from
        if store is None or source is None:
            return False
        tiles = {tile.key: tile for tile in store.missing(work.request)}
        for key, tile in tiles.items():
            if key not in self._fetches:
                fetch = self._fetches[key] = _Fetch(next(self._next), source, tile)
                self._ask(fetch, store)
        if tiles:
            self._waiting.append(WaitingRequest(link_id, work, masks, set(tiles)))
        return bool(tiles)

    def came(self, number: int, sent: RowsSent | None, found: bytes = b"") -> list[WaitingRequest]:
        """Takes the answer `sent` to the question `number` of `asks`; None where no answer will come. Returns the
        requests that wait no longer: their rows are complete, or are encoded here because they will not come. found:
        the hash of the rows that were received."""
        fetch = next((each for each in self._fetches.values() if each.number == number), None)
        store = self._store
        if fetch is None or store is None:
            return []
        first = len(fetch.data) // store.row_bytes
        if sent is not None and not sent.over and not sent.data:
            self._ask(fetch, store)
            return []
        if sent is None or not self._whole(fetch, sent, first, found):
            return self._over(fetch)
        fetch.data += sent.data
        self.received_bytes += len(sent.data)
        if len(fetch.data) < fetch.tile.rows * store.row_bytes:
            self._ask(fetch, store)
            return []
        store.keep(fetch.tile.key, bytes(fetch.data))
        return self._over(fetch)

    def cancel(self, link_id: LinkId, number: int | None = None) -> None:
        """Forgets a request of a front (an API server); without a number, all requests of the front. Rows that no other
        request needs are not fetched any more."""
        self._waiting = [
            each for each in self._waiting if each.link_id != link_id or number not in (None, each.work.number)
        ]
        wanted = {key for each in self._waiting for key in each.keys}
        self._fetches = {key: fetch for key, fetch in self._fetches.items() if key in wanted}

    def waits(self, link_id: LinkId, number: int) -> bool:
        """Returns whether a request of this number waits for image rows."""
        return any(each.link_id == link_id and each.work.number == number for each in self._waiting)

    def _whole(self, fetch: _Fetch, sent: RowsSent, first: int, found: bytes) -> bool:
        """Returns whether these are the next rows of the tile, undamaged."""
        store = self._store
        if store is None or sent.over or sent.first != first or len(sent.data) % store.row_bytes:
            return False
        fits = len(fetch.data) + len(sent.data) <= fetch.tile.rows * store.row_bytes
        return fits and sent.digest == rows_digest(wire_key(fetch.tile.key), first, found)

    def _ask(self, fetch: _Fetch, store: RowStore) -> None:
        """Asks for all rows that are missing. An answer may hold fewer (ANSWER_BYTES of the sender); `came` then asks
        for the remaining ones."""
        first = len(fetch.data) // store.row_bytes
        asked = RowsAsked(fetch.number, wire_key(fetch.tile.key), first, fetch.tile.rows - first)
        self.asks.append((fetch.source, asked, store.predicted_s(fetch.tile)))

    def _over(self, fetch: _Fetch) -> list[WaitingRequest]:
        """Ends the fetch of this tile. Returns the requests that wait for no more tiles."""
        del self._fetches[fetch.tile.key]
        for each in self._waiting:
            each.keys.discard(fetch.tile.key)
        ready = [each for each in self._waiting if not each.keys]
        self._waiting = [each for each in self._waiting if each.keys]
        return ready
