"""The core of a replica that only encodes images: tiles in, image rows out. It computes no request."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from twostroke.distributed.replica.page_feeds import LinkId, PageFeeds
from twostroke.distributed.replica.page_pulls import PagePulls
from twostroke.distributed.replica.row_feeds import RowFeeds, RowStore
from twostroke.distributed.replica.row_pulls import RowPulls
from twostroke.distributed.wire.frames import (
    Assignment,
    Frame,
    PagesSent,
    RecordAsked,
    RecordSent,
    Refused,
    ReplicaLoad,
    RowsSent,
)
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar, TokenMask

NO_TEXT = "This replica encodes images and has no language model."


class NoGrammars:
    """Satisfies engine.session.Grammars where nothing is generated."""

    def submit(self, grammar: Grammar, count: int) -> Future[tuple[TokenMask, ...]]:
        """Refuses a grammar."""
        raise InvalidRequest(NO_TEXT)


class EncodeCore:
    """Serves a `ReplicaServer`, as `ReplicaCore` does. Only one thread at a time may use it. outbox: pairs (link,
    frame)."""

    has_work = False
    page_rate = 0.0

    def __init__(self, rows: RowStore) -> None:
        self.outbox: deque[tuple[LinkId, Frame]] = deque()
        numbers = itertools.count(1)
        self.pulls, self.feeds = PagePulls(None, numbers), PageFeeds(None, self.outbox)
        self.row_pulls, self.row_feeds = RowPulls(None, numbers), RowFeeds(rows, self.outbox)

    @property
    def idle(self) -> bool:
        """True while nothing is encoded."""
        return not self.row_feeds.has_work

    @property
    def waits(self) -> bool:
        """Returns whether a question of another replica still waits for its answer."""
        return self.feeds.waits or self.row_feeds.waits

    def open(self, link_id: LinkId) -> None:
        """Does nothing: no state is kept for a front that has connected."""

    def work(self, link_id: LinkId, work: Assignment, _masks: Sequence[TokenMask] = ()) -> None:
        """Refuses a request."""
        self.outbox.append((link_id, Refused(work.number, NO_TEXT)))

    def pages_came(self, number: int, sent: PagesSent | None, hashes: Sequence[bytes] = ()) -> None:
        """Does nothing, because no pages were asked for."""

    def rows_came(self, number: int, sent: RowsSent | None, found: bytes = b"") -> None:
        """Does nothing, because no rows were asked for."""

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """See ReplicaCore."""
        pages = self.feeds.answer(now, busy)
        return self.row_feeds.answer(now, busy) or pages

    def let_go(self) -> None:
        """Does nothing, because no pages take up memory."""

    def cancel(self, link_id: LinkId, number: int) -> None:
        """Ends the encodes of a number."""
        self.row_feeds.cancel(link_id, number)

    def close(self, link_id: LinkId) -> None:
        """Ends the encodes and questions of a front or a replica that is gone."""
        self.feeds.close(link_id)
        self.row_feeds.cancel(link_id)

    def record(self, link_id: LinkId, asked: RecordAsked) -> None:
        """Answers that nothing is known, because no stream has ended here."""
        self.outbox.append((link_id, RecordSent(asked.number, None)))

    def step(self) -> ReplicaLoad | None:
        """Returns None, because there is no step to compute."""
        return None

    def load(self) -> ReplicaLoad:
        """Returns the load, which is the predicted seconds of the encodes that are left."""
        return ReplicaLoad(encode_s=self.row_feeds.left_s)
