"""Encodes for other replicas, and their questions for the rows. A question for rows that are not there yet waits.

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
    """Where image rows lie, and what encodes. Keys are those of tiles (`types/images.py`)."""

    @property
    def row_bytes(self) -> int:
        """The bytes of an image row."""

    def has(self, key: int) -> bool:
        """Are all rows of this tile here?"""

    def read(self, key: int, first: int, count: int) -> bytes | None:
        """A copy of rows [first, first + count) of a tile; None where its rows are not here."""

    def keep(self, key: int, data: bytes) -> None:
        """Keep all rows of a tile, which another replica has encoded."""

    def work(self, tile: ImageTile, seconds: float) -> bool:
        """Pieces of an encode that are predicted to take at most so long, at least one. -> is it over?"""

    def predicted_s(self, tile: ImageTile) -> float:
        """Seconds of its encode."""

    def missing(self, request: Request) -> Iterable[ImageTile]:
        """Tiles of a request whose rows would have to be encoded here: its cached prefix shows some of them."""


@dataclass(eq=False, slots=True)
class _Question:
    """heard_s: when it came."""

    asked: RowsAsked
    heard_s: float


class RowFeeds:
    """One thread at a time. store: None where images are not read. outbox: where answers are put."""

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
        """Has a question no answer yet?"""
        return bool(self._questions)

    @property
    def left_s(self) -> float:
        """Predicted seconds of the encodes to do."""
        store = self._store
        tiles = {tile.key: tile for job in self._jobs.values() for tile in job}
        return 0.0 if store is None else sum(store.predicted_s(t) for t in tiles.values() if not store.has(t.key))

    def expect(self, link_id: LinkId, ahead: TilesAhead) -> None:
        """Questions for these tiles wait from now on."""
        if self._store is not None:
            self._expected[link_id, ahead.number] = {span.key for span in ahead.images}

    def begin(self, link_id: LinkId, job: EncodeJob) -> None:
        """Encode these tiles, after those of jobs that came before."""
        if (link_id, job.number) in self._expected:
            self._jobs[link_id, job.number] = deque(job.tiles)

    def cancel(self, link_id: LinkId, number: int | None = None) -> None:
        """Forget a job of a front, or all of them, and with them the questions of a replica that is gone."""
        for jobs in (self._expected, self._jobs):
            for key in [key for key in jobs if key[0] == link_id and number in (None, key[1])]:
                del jobs[key]
        if number is None:
            for key in [key for key in self._questions if key[0] == link_id]:
                del self._questions[key]

    def work(self, seconds: float) -> bool:
        """Pieces of the first encode that are predicted to take at most so long. -> was there any?"""
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
        """Note a question."""
        if self._store is None or len(self._questions) >= MOST_QUESTIONS:
            self._outbox.append((link_id, RowsSent(asked.number, over=True)))
        else:
            self._questions[link_id, asked.number] = _Question(asked, now)

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """Answer what can be answered: rows that are here, or none where the time is over.

        There is one answer with rows for each link, as `PageFeeds.answer` has it. busy: links that have unsent bytes
        already; those that are answered come into it. -> was anything answered?
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
        """The answer to a question; None where it waits."""
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
    """Against damage on the way, and against rows of another tile or place. found: the hash of the rows' bytes."""
    return page_digest(key + first.to_bytes(8, "little"), found)
