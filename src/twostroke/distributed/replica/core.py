"""The work of a replica: takes an Assignment, makes StepNews. It has no socket, no thread, and no text. Answers to
fronts (the API servers that send requests) and to other replicas are put into `outbox`; the caller sends them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from twostroke.distributed.replica.page_exchange import PageExchange
from twostroke.distributed.replica.page_feeds import LinkId, PageFeeds
from twostroke.distributed.replica.page_pulls import PageFetch, PagePulls
from twostroke.distributed.replica.row_feeds import RowFeeds, RowStore
from twostroke.distributed.replica.row_pulls import RowPulls
from twostroke.distributed.replica.streams import ReplicaStreams
from twostroke.distributed.wire.frames import (
    Assignment,
    Frame,
    PagesSent,
    RecordAsked,
    RecordSent,
    Refused,
    ReplicaLoad,
    RowsSent,
    StepNews,
)
from twostroke.types.grammar import TokenMask


class ReplicaCore:
    """Computes the requests of fronts (API servers), and exchanges pages and image rows with other replicas. Only one
    thread at a time may use it. streams: the requests that it computes; `NoStreams` where it only encodes images.

    pages: None where pages cannot be sent; then every request is computed from its beginning. images: None where no
    images are read. page_rate: the measured rate of pages that were fetched, in bytes a second; the caller of
    `pages_came` sets it. outbox: (link, frame), to be sent in this order.
    """

    def __init__(
        self, streams: ReplicaStreams, pages: PageExchange | None = None, images: RowStore | None = None
    ) -> None:
        self.outbox: deque[tuple[LinkId, Frame]] = deque()
        numbers = itertools.count(1)
        self.pulls, self.feeds = PagePulls(pages, numbers), PageFeeds(pages, self.outbox)
        self.row_pulls, self.row_feeds = RowPulls(images, numbers), RowFeeds(images, self.outbox)
        self.page_rate = 0.0
        self._streams = streams

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, or a plan is in flight."""
        return self._streams.has_work

    @property
    def idle(self) -> bool:
        """True while no request is computed, none waits for pages or image rows, and nothing is encoded for others."""
        return not (self.has_work or self.pulls or self.row_pulls or self.row_feeds.has_work)

    @property
    def waits(self) -> bool:
        """Returns whether another replica has asked for pages or image rows and has no answer yet."""
        return self.feeds.waits or self.row_feeds.waits

    def open(self, link_id: LinkId) -> None:
        """Begins to serve a front (an API server) that has connected."""
        self._streams.open(link_id)

    def work(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask] = ()) -> None:
        """Queues a request, or first asks another replica for its pages or image rows. masks: the token masks of the
        grammar, for the request and each of its beams; they have already taken in the output that an earlier replica
        made."""
        if not self._streams.serves(link_id):
            return
        if why := self._streams.why_not(work.request):
            self.outbox.append((link_id, Refused(work.number, why)))
        elif self._streams.has(link_id, work.number) or self._waits(link_id, work.number):
            self.outbox.append((link_id, Refused(work.number, "A stream of this number is running.")))
        elif not self.pulls.begin(link_id, work, masks):
            self._fetch_rows(link_id, work, masks)

    def _waits(self, link_id: LinkId, number: int) -> bool:
        """Returns whether a stream of this number waits for pages or image rows."""
        return self.pulls.waits(link_id, number) or self.row_pulls.waits(link_id, number)

    def pages_came(self, number: int, sent: PagesSent | None, hashes: Sequence[bytes] = ()) -> None:
        """Takes another replica's answer to one of `pulls.asks`; None means that there will be no answer. Queues the
        request that waited for it when no more pages will come.

        hashes: one hash of each page's data, see page_exchange.hash_of.
        """
        self._queue_pulled(self.pulls.came(number, sent, hashes))

    def rows_came(self, number: int, sent: RowsSent | None, found: bytes = b"") -> None:
        """Takes another replica's answer to one of `row_pulls.asks`, and queues the requests that wait no longer. sent:
        the answer; None where none will come. found: the hash of the image rows that were received."""
        for each in self.row_pulls.came(number, sent, found):
            self._queue(each.link_id, each.work, each.masks)

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """Sends pages and image rows to replicas that asked for them, as far as they are computed now. Returns whether
        any question was answered. busy: links with many unsent bytes; their questions wait."""
        pages = self.feeds.answer(now, busy)
        return self.row_feeds.answer(now, busy) or pages

    def let_go(self) -> None:
        """Ends all transfers of pages where a request waits for memory, and queues the requests that waited for these
        pages. The caller does this when no step can be planned, because fetched pages take up memory."""
        if self._streams.wants_memory:
            self._queue_pulled(*self.pulls.let_go())

    def _queue_pulled(self, *pulls: PageFetch | None) -> None:
        for pull in pulls:
            if pull is not None and pull.work is not None:
                self._fetch_rows(pull.link_id, pull.work, pull.masks)

    def _fetch_rows(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> None:
        """Asks for image rows where another replica encodes them; otherwise queues the request."""
        if not self.row_pulls.begin(link_id, work, masks):
            self._queue(link_id, work, masks)

    def _queue(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> None:
        refused = self._streams.queue(link_id, work, masks)
        if refused is not None:
            self.outbox.append((link_id, refused))

    def cancel(self, link_id: LinkId, number: int) -> None:
        """Ends a stream; it has no more events. Ending one beam ends all beams of its search."""
        self.pulls.cancel(link_id, number)
        self.row_pulls.cancel(link_id, number)
        self.row_feeds.cancel(link_id, number)
        self._streams.cancel(link_id, number)

    def close(self, link_id: LinkId) -> None:
        """Ends all work for a connection that was lost: the streams of a front (API server), or the transfers of a
        replica that asked for pages or image rows."""
        self.pulls.cancel(link_id)
        self.feeds.close(link_id)
        self.row_pulls.cancel(link_id)
        self.row_feeds.cancel(link_id)
        self._streams.close(link_id)

    def record(self, link_id: LinkId, asked: RecordAsked) -> None:
        """Answers a front (API server) that asks where the time of an ended stream went."""
        self.outbox.append((link_id, RecordSent(asked.number, self._streams.explanation(asked))))

    def step(self) -> ReplicaLoad | None:
        """Computes one step, and puts a StepNews into `outbox` for each front (API server) whose streams have new
        events. Returns the load after the step; None where nothing can be computed. Raises EngineStopped, as `settle`
        of the streams does."""
        news = self._streams.step()
        if news is None:
            return None
        load = self.load()
        self.outbox.extend((link_id, StepNews(load, events)) for link_id, events in news)
        self._streams.settle()
        return load

    def load(self) -> ReplicaLoad:
        """The replica's load at this moment."""
        return self._streams.load(self.page_rate, self.row_feeds.left_s)
