"""The core of a replica without its frames: Assignment in, StepNews out. It has no socket, no thread, and no text.

Frames for fronts and for other replicas are put into `outbox`.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twostroke.cost.explain.explanation import replica_name
from twostroke.cost.explain.verdict import Explainer
from twostroke.cost.shape import Segment
from twostroke.distributed.replica.page_exchange import PageExchange
from twostroke.distributed.replica.page_feeds import LinkId, PageFeeds
from twostroke.distributed.replica.page_pulls import PageFetch, PagePulls
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
    StepNews,
    WireEnd,
    WireStart,
)
from twostroke.distributed.wire.translate import requests_of, wire_event
from twostroke.engine.disk.contract import DiskCounts
from twostroke.engine.disk.disk_pages import DiskPages
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.step_loop import StepLoop
from twostroke.types.errors import EngineStopped, Overloaded, TwostrokeError
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.grammar import TokenMask
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.result import StepResult
from twostroke.types.verified_guesses import NO_GUESSES, guesses_of

NO_PROMISE = "Its first token cannot be promised in time here."
PREFILL_TOKENS = 256
"""The predicted seconds of a prompt's token are those of a chunk of this size."""
NOTHING_COUNTED = DiskCounts()
PREDICTED_S = 0.1
"""The age in seconds at which a prediction is made again. A prediction takes as long as sending a step's news."""


def always_possible(_request: Request) -> str:
    """Returns "": every request can be computed."""
    return ""


@dataclass(eq=False, slots=True)
class _Link:
    """The streams of one front: their numbers by request id, and their ids by number. tokens: the number of tokens of
    prompt and resumed output, by request id.

    came_s: the time of its Assignment, for each stream that has not started.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    came_s: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)


class ReplicaCore:
    """Only one thread at a time may use it. times: predicts steps. explainer: explains where time went; its ledger
    records each request and each step.

    pages: None where pages cannot be sent; then every request is computed from its beginning. page_rate: bytes a
    second of pages that came, as measured by who calls `pages_came`. outbox: (link, frame), to be sent in this order.
    why_not: why a request cannot be computed here, or nothing. images: None where no images are read. disk: None where
    no pages are kept on one.
    """

    def __init__(
        self,
        loop: StepLoop,
        times: StepTime,
        explainer: Explainer,
        pages: PageExchange | None = None,
        why_not: Callable[[Request], str] = always_possible,
        images: RowStore | None = None,
        disk: DiskPages | None = None,
    ) -> None:
        self.outbox: deque[tuple[LinkId, Frame]] = deque()
        numbers = itertools.count(1)
        self.pulls, self.feeds = PagePulls(pages, numbers), PageFeeds(pages, self.outbox)
        self.row_pulls, self.row_feeds = RowPulls(images, numbers), RowFeeds(images, self.outbox)
        self.page_rate = 0.0
        self._loop, self._book, self._clock = loop, loop.book, loop.clock
        self._times = times
        self._why_not, self._disk = why_not, disk
        self._explainer, self._ledger = explainer, explainer.ledger
        loop.listen(self._ledger, self._computed)
        self._links: dict[LinkId, _Link] = {}
        self._starts: dict[str, WireStart] = {}
        self._step_s = 0.0
        self._guesses = NO_GUESSES
        self._token_s, self._predicted_s = 0.0, -math.inf

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, or a plan is in flight."""
        return self._loop.has_work

    @property
    def idle(self) -> bool:
        """True while no request is computed, none waits for pages or image rows, and nothing is encoded for others."""
        return not (self.has_work or self.pulls or self.row_pulls or self.row_feeds.has_work)

    @property
    def waits(self) -> bool:
        """Returns whether a question of another replica still waits for its answer."""
        return self.feeds.waits or self.row_feeds.waits

    def open(self, link_id: LinkId) -> None:
        """Begins to serve a front that has connected."""
        self._links[link_id] = _Link()

    def work(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask] = ()) -> None:
        """Queues a request, or first asks for its pages. masks: the token masks of its grammar, for the request and
        each of its beams, after the resumed tokens."""
        link = self._links.get(link_id)
        if link is None:
            return
        if why := self._why_not(work.request):
            self._refuse(link_id, work.number, why)
        elif work.number in link.ids or self._waits(link_id, work.number):
            self._refuse(link_id, work.number, "A stream of this number is running.")
        elif not self.pulls.begin(link_id, work, masks):
            self._fetch_rows(link_id, work, masks)

    def _waits(self, link_id: LinkId, number: int) -> bool:
        """Returns whether a stream of this number waits for pages or image rows."""
        return self.pulls.waits(link_id, number) or self.row_pulls.waits(link_id, number)

    def pages_came(self, number: int, sent: PagesSent | None, hashes: Sequence[bytes] = ()) -> None:
        """Takes an answer to `pulls.asks`; None means that there will be no answer. Queues the request when nothing
        more will come.

        hashes: one hash of each page's data, see page_exchange.hash_of.
        """
        self._queue_pulled(self.pulls.came(number, sent, hashes))

    def rows_came(self, number: int, sent: RowsSent | None, found: bytes = b"") -> None:
        """Takes an answer to `row_pulls.asks`, as `pages_came` does for pages. found: the hash of the rows' bytes."""
        for each in self.row_pulls.came(number, sent, found):
            self._queue(each.link_id, each.work, each.masks)

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """Answers the questions of other replicas that can be answered now. Returns whether any was answered. busy:
        links with unsent bytes."""
        pages = self.feeds.answer(now, busy)
        return self.row_feeds.answer(now, busy) or pages

    def let_go(self) -> None:
        """Ends all transfers of pages and queues their requests. It is called where no step can be planned, because
        the pages take up memory. It does nothing where no request waits for a step, because then nothing needs the
        memory."""
        gauges = self._book.gauges()
        if gauges.running or gauges.waiting:
            self._queue_pulled(*self.pulls.let_go())

    def _queue_pulled(self, *pulls: PageFetch | None) -> None:
        for pull in pulls:
            if pull is not None and pull.work is not None:
                self._fetch_rows(pull.link_id, pull.work, pull.masks)

    def _fetch_rows(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> None:
        """Asks for image rows where another replica encodes them; otherwise queues the request."""
        if not self.row_pulls.begin(link_id, work, masks):
            self._queue(link_id, work, masks)

    def _refuse(
        self, link_id: LinkId, number: int, why: str, retry_after_s: float | None = None, may_hold: bool = False
    ) -> None:
        self.outbox.append((link_id, Refused(number, why, retry_after_s, may_hold)))

    def _queue(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> None:
        link = self._links[link_id]
        beams = (f"{work.request.group_id}/{place}" for place in range(1, 1 + len(work.beams)))
        pairs = zip((work.request.request_id, *beams), (work.number, *work.beams), strict=True)
        names = {replica_name(name, link_id, number): number for name, number in pairs}
        now = self._clock()
        try:
            requests = requests_of(work, list(names), masks or [None] * len(names), now)
            for request in requests:
                self._book.add(request)
        except Overloaded as error:
            return self._refuse(link_id, work.number, str(error), error.retry_after_s)
        except (TwostrokeError, ValueError) as error:
            return self._refuse(link_id, work.number, str(error))
        first = requests[0].request_id  # the other beams are copies of the first one: they compute no prompt
        if work.promised and self._book.holds(first):
            self._book.abort(first, now)
            return self._refuse(link_id, work.number, NO_PROMISE, 0.0, may_hold=True)
        for request in requests:
            self._ledger.arrive(replace(request, arrival_s=now))  # the front counts the time before this moment
        for request_id, number in names.items():
            link.numbers[request_id], link.ids[number] = number, request_id
        link.came_s[first] = now
        link.tokens[first] = len(work.request.prompt_token_ids) + len(work.resumed)

    def cancel(self, link_id: LinkId, number: int) -> None:
        """Ends a stream, and with a beam the others of its search. No more events of the stream are made."""
        self.pulls.cancel(link_id, number)
        self.row_pulls.cancel(link_id, number)
        self.row_feeds.cancel(link_id, number)
        link = self._links.get(link_id)
        request_id = None if link is None else link.ids.get(number)
        if link is not None and request_id is not None:
            for event in self._ended(self._book.abort(request_id, self._clock())):
                _forget(link, event.request_id)

    def close(self, link_id: LinkId) -> None:
        """Ends the streams and questions of a lost link, which is a front or a replica that asked for pages."""
        self.pulls.cancel(link_id)
        self.feeds.close(link_id)
        self.row_pulls.cancel(link_id)
        self.row_feeds.cancel(link_id)
        link = self._links.pop(link_id, None)
        for request_id in [] if link is None else list(link.numbers):
            self._ended(self._book.abort(request_id, self._clock()))

    def record(self, link_id: LinkId, asked: RecordAsked) -> None:
        """Answers where the time of a stream went that has ended here."""
        found = self._ledger.accounts.find(asked.group)
        own = [each for each in found if each.request_id.endswith(f".{asked.number}")]
        explanation = self._explainer.explanation(own[-1]) if own else None
        self.outbox.append((link_id, RecordSent(asked.number, explanation)))

    def step(self) -> ReplicaLoad | None:
        """Computes one step, and puts a StepNews into `outbox` for each front whose streams got something. Returns the
        load after the step; None where nothing can be computed.

        A fault ends the requests of its plan. Raises EngineStopped where three steps in a row fail and the probe fails
        too.
        """
        step = self._loop.step()
        if step is None:
            return None
        starts, self._starts = self._starts, {}
        load = self.load()
        self._tell_news(self._ended(step.events), starts, load)
        self._ledger.close_step(self._clock())
        self._loop.check_machine(
            EngineStopped("The replica has stopped.", why="Its machine fails.", fix="Restart it.")
        )
        return load

    def load(self) -> ReplicaLoad:
        """The replica's load at this moment."""
        gauges = self._book.gauges()
        counts = NOTHING_COUNTED if self._disk is None else self._disk.counts
        pending = sum(sum(link.tokens[name] for name in link.came_s) for link in self._links.values())
        if (now := self._clock()) - self._predicted_s > PREDICTED_S:
            self._predicted_s = now
            self._token_s = self._times.usual_s([Segment.prefill(0, PREFILL_TOKENS, True)]) / PREFILL_TOKENS
        return ReplicaLoad(
            running=gauges.running,
            waiting=gauges.waiting,
            pages_free=gauges.pages_free,
            pages_used=gauges.pages_used,
            pages_cached=gauges.pages_cached,
            prefill_tokens=pending,
            token_s=self._token_s,
            step_s=self._step_s,
            preemptions=gauges.preemptions_total,
            query_tokens=gauges.prefix_query_tokens,
            hit_tokens=gauges.prefix_hit_tokens,
            waste_tokens=gauges.waste_tokens,
            page_rate=self.page_rate,
            encode_s=self.row_feeds.left_s,
            guesses=self._guesses,
            disk_waits=self._disk is not None and not self._disk.settled,
            disk_written_bytes=counts.written_bytes,
            disk_read_bytes=counts.read_bytes,
        )

    def _computed(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """Learns from a step's time before the step is committed, and notes the sequences that it computed for the
        first time."""
        self._ledger.step(plan, result, begin_s, commit_s)
        self._guesses = self._guesses.plus(guesses_of(plan, result))
        self._step_s = commit_s - begin_s
        if not (result.cold or result.faulty):
            self._times.observe(plan.sequences, self._step_s, commit_s)
        for link in self._links.values():
            for sequence in plan.sequences if link.came_s else ():
                request_id = sequence.request.request_id
                if (came_s := link.came_s.pop(request_id, None)) is not None:
                    waited_s = max(0.0, begin_s - came_s)
                    self._starts[request_id] = WireStart(link.numbers[request_id], waited_s, sequence.start)

    def _ended(self, events: Sequence[Event]) -> Sequence[Event]:
        """Reports each end among the events to the ledger, and returns the events."""
        for event in events:
            if isinstance(event, FinishedEvent):
                self._ledger.finish(event)
        return events

    def _tell_news(self, events: Sequence[Event], starts: dict[str, WireStart], load: ReplicaLoad) -> None:
        for link_id, link in self._links.items():
            begun = [start for name, start in starts.items() if name in link.numbers]
            found = [wire for event in events if (wire := wire_event(event, link.numbers)) is not None]
            if begun or found:
                self.outbox.append((link_id, StepNews(load, (*begun, *found))))
            for end in found:
                if isinstance(end, WireEnd):
                    _forget(link, link.ids[end.number])


def _forget(link: _Link, request_id: str) -> None:
    del link.ids[link.numbers.pop(request_id)]
    link.came_s.pop(request_id, None)
    link.tokens.pop(request_id, None)
