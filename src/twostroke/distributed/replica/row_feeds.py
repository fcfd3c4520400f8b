"""Encodes images for other replicas, and answers their questions for the rows. A question for rows that are not encoded
yet waits.

    expect(link_id, ahead)      a front has asked for encodes; pixels may still be on their way
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
        """Computes pieces of a tile's encode that are predicted to take at most `seconds`, at least one. Returns
        whether the encode is over."""

    def predicted_s(self, tile: ImageTile) -> float:
        """Returns the predicted seconds of the tile's encode."""

    def missing(self, request: Request) -> Iterable[ImageTile]:
        """Returns the tiles of a request whose rows would have to be encoded here. Tiles that its cached prefix shows
        are left out."""


@dataclass(eq=False, slots=True)
class _Question:
    """A question for rows. heard_s: the time when it came."""

    asked: RowsAsked
    heard_s: float


class RowFeeds:
    """Only one thread at a time may use it. store: None where images are not read. outbox: the queue into which answers
    are put."""

    def __init__(self, store: RowStore | None, outbox: deque[tuple[LinkId, Frame]]) -> None:
        self._store, self._outbox = store, outbox
        self._expected: dict[tuple[LinkId, int], set[bytes]] = {}
        self._jobs: OrderedDict[tuple[LinkId, int], deque[ImageTile]] = OrderedDict()
        self._questions: dict[tuple[LinkId, int], _Question] = {}

    @property
    def has_work(self) -> bool:
        """Is there an encode to do?"""
        return bool(self._jobs)

    @property
    def waits(self) -> bool:
        """Does a question still wait for its answer?"""
        return bool(self._questions)

    @property
    def left_s(self) -> float:
        """The predicted seconds of the encodes to do."""
        store = self._store
        tiles = {tile.key: tile for job in self._jobs.values() for tile in job}
        return 0.0 if store is None else sum(store.predicted_s(t) for t in tiles.values() if not store.has(t.key))

    def expect(self, link_id: LinkId, ahead: TilesAhead) -> None:
        """Makes questions for these tiles wait from now on."""
        if self._store is not None:
            self._expected[link_id, ahead.number] = {span.key for span in ahead.images}

    def begin(self, link_id: LinkId, job: EncodeJob) -> None:
        """Queues these tiles to be encoded after those of earlier jobs."""
        if (link_id, job.number) in self._expected:
            self._jobs[link_id, job.number] = deque(job.tiles)

    def cancel(self, link_id: LinkId, number: int | None = None) -> None:
        """Forgets a job of a front. Without a number, forgets all jobs of the link, and the questions of a replica that
        is gone."""
        for jobs in (self._expected, self._jobs):
            for key in [key for key in jobs if key[0] == link_id and number in (None, key[1])]:
                del jobs[key]
        if number is None:
            for key in [key for key in self._questions if key[0] == link_id]:
                del self._questions[key]

    def work(self, seconds: float) -> bool:
        """Computes pieces of the first encode that are predicted to take at most `seconds`. Returns whether there were
        any."""
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
        """Notes a question."""
        if self._store is None or len(self._questions) >= MOST_QUESTIONS:
            self._outbox.append((link_id, RowsSent(asked.number, over=True)))
        else:
            self._questions[link_id, asked.number] = _Question(asked, now)

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """Answers the questions that can be answered: with rows that are here, or with none where the time is over.
        Returns whether any was answered.

        There is one answer with rows for each link, as in `PageFeeds.answer`. busy: links that have unsent bytes
        already; links that are answered are added to it.
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
        """Returns the answer to a question; None where the question still waits."""
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
    """Returns a digest that detects damaged rows, and rows of another tile or place. found: the hash of the rows'
    bytes."""
    return page_digest(key + first.to_bytes(8, "little"), found)
