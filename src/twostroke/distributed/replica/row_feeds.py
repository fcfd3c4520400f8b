"""Encodes images for other replicas, and answers the replicas that ask for the rows. A question for rows that are not
encoded yet waits.

    expect(link_id, ahead)      a front (API server) has announced tiles to encode; no pixels yet
    begin(link_id, job)         pixels are here
    work(seconds) -> bool       pieces of the encode that came first
    ask(link_id, asked, now)    another replica wants rows
    answer(now, busy) -> bool   answers what can be answered
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from twostroke.distributed.replica.page_feeds import WAIT_S, LinkId
from twostroke.distributed.wire.frames import Frame, RowsAsked, RowsSent, TilesAhead
from twostroke.distributed.wire.translate import EncodeJob, wire_key
from twostroke.engine.cache.places import hash_of, page_digest
from twostroke.types.images import ImageTile, key_of
from twostroke.types.request import Request

ANSWER_BYTES = 8 << 20
"""The most bytes of rows in one answer, which has at least one row."""
MOST_QUESTIONS = 4096


class RowStore(Protocol):
    """Keeps image rows and encodes tiles. Keys are the keys of tiles (`types/images.py`)."""

    @property
    def row_bytes(self) -> int:
        """The bytes of an image row."""

    def has(self, key: int) -> bool:
        """Returns whether all rows of this tile are here."""

    def read(self, key: int, first: int, count: int) -> bytes | None:
        """Returns a copy of rows [first, first + count) of a tile; None where its rows are not here."""

    def keep(self, key: int, data: bytes) -> None:
        """Keeps all rows of a tile that another replica has encoded."""

    def work(self, tile: ImageTile, seconds: float) -> bool:
        """Encodes a tile further: computes the next pieces, those that are predicted to take `seconds` together, and at
        least one. Returns whether the tile is encoded now."""

    def predicted_s(self, tile: ImageTile) -> float:
        """Returns the predicted seconds of the tile's encode."""

    def missing(self, request: Request) -> Iterable[ImageTile]:
        """Returns the tiles of a request that would have to be encoded here. Tiles whose positions are all in the
        prefix cache are left out."""


@dataclass(eq=False, slots=True)
class _Question:
    """Another replica's question for image rows. heard_s: the time when the question came."""

    asked: RowsAsked
    heard_s: float


class RowFeeds:
    """Encodes image tiles for other replicas, and sends them the rows that they ask for. Only one thread at a time may
    use it. store: encodes tiles and holds their rows; None where this replica reads no images. outbox: the queue into
    which answers are put."""

    def __init__(self, store: RowStore | None, outbox: deque[tuple[LinkId, Frame]]) -> None:
        self._store, self._outbox = store, outbox
        self._expected: dict[tuple[LinkId, int], set[bytes]] = {}
        self._jobs: OrderedDict[tuple[LinkId, int], deque[ImageTile]] = OrderedDict()
        self._questions: dict[tuple[LinkId, int], _Question] = {}

    @property
    def has_work(self) -> bool:
        """True while there are tiles to encode."""
        return bool(self._jobs)

    @property
    def waits(self) -> bool:
        """True while another replica has asked for image rows and has no answer yet."""
        return bool(self._questions)

    @property
    def left_s(self) -> float:
        """The predicted seconds of the encodes that are left."""
        store = self._store
        tiles = {tile.key: tile for job in self._jobs.values() for tile in job}
        return 0.0 if store is None else sum(store.predicted_s(t) for t in tiles.values() if not store.has(t.key))

    def expect(self, link_id: LinkId, ahead: TilesAhead) -> None:
        """Notes that these tiles will be encoded here, before their pixels have come. A replica that asks for their
        rows then gets its answer later, instead of "not here" at once."""
        if self._store is not None:
            self._expected[link_id, ahead.number] = {span.key for span in ahead.images}

    def begin(self, link_id: LinkId, job: EncodeJob) -> None:
        """Queues a job of tiles whose pixels have come, after earlier jobs."""
        if (link_id, job.number) in self._expected:
            self._jobs[link_id, job.number] = deque(job.tiles)

    def cancel(self, link_id: LinkId, number: int | None = None) -> None:
        """Ends an encode job of a front (API server). Without a number, ends all jobs of the connection, and drops its
        open questions."""
        for jobs in (self._expected, self._jobs):
            for key in [key for key in jobs if key[0] == link_id and number in (None, key[1])]:
                del jobs[key]
        if number is None:
            for key in [key for key in self._questions if key[0] == link_id]:
                del self._questions[key]

    def work(self, seconds: float) -> bool:
        """Continues the encode of the tile that has waited longest, by at least one piece. Several pieces together are
        predicted to take at most `seconds`. Returns whether there was anything to encode."""
        store = self._store
        if store is None or not self._jobs:
            return False
        name, tiles = next(iter(self._jobs.items()))
        if tiles and (store.has(tiles[0].key) or store.work(tiles[0], seconds)):
            done = wire_key(tiles.popleft().key)
            for keys in self._expected.values():
                keys.discard(done)
        if not tiles:
            del self._jobs[name]
        return True

    def ask(self, link_id: LinkId, asked: RowsAsked, now: float) -> None:
        """Takes another replica's question for image rows; `answer` answers it later. It is refused at once where no
        images are read, or too many questions wait."""
        if self._store is None or len(self._questions) >= MOST_QUESTIONS:
            self._outbox.append((link_id, RowsSent(asked.number, over=True)))
        else:
            self._questions[link_id, asked.number] = _Question(asked, now)

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """Answers the replicas that asked for image rows. Sends the rows that are encoded, or none where a question has
        waited for WAIT_S. Returns whether anything was sent.

        Each connection gets at most one answer with rows, because the bytes of many would take too long to send. busy:
        connections with many unsent bytes, which get no answer; a connection that gets rows is added to the set.
        """
        before = len(self._questions)
        for (link_id, number), question in list(self._questions.items()):
            if link_id in busy:
                continue
            sent = self._sent(question, now)
            if sent is not None:
                self._outbox.append((link_id, sent))
                del self._questions[link_id, number]
                if sent.data:
                    busy.add(link_id)
        return len(self._questions) < before

    def _sent(self, question: _Question, now: float) -> RowsSent | None:
        """Returns the answer to a question; None where the question is to wait longer."""
        asked, store = question.asked, self._store
        if store is None:
            return RowsSent(asked.number, over=True)
        count = min(asked.count, max(1, ANSWER_BYTES // store.row_bytes))
        data = store.read(key_of(asked.key), asked.first, count)
        if data is not None:
            digest = rows_digest(asked.key, asked.first, hash_of(data))
            return RowsSent(asked.number, asked.first, data, digest, over=not data)
        if now - question.heard_s <= WAIT_S:
            return None
        return RowsSent(asked.number, over=not any(asked.key in keys for keys in self._expected.values()))


def rows_digest(key: bytes, first: int, found: bytes) -> bytes:
    """Returns a digest by which a receiver detects damaged rows, and rows of another tile or another place in the tile.
    found: the hash of the rows' bytes."""
    return page_digest(key + first.to_bytes(8, "little"), found)
