"""The streams of a replica, that is, the requests of fronts (API servers) that its step loop computes, and the events
for each front."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from twostroke.cost.explain.explanation import Explanation, replica_name
from twostroke.cost.explain.verdict import Explainer
from twostroke.cost.shape import Segment
from twostroke.distributed.replica.page_feeds import LinkId
from twostroke.distributed.wire.frames import (
    Assignment,
    RecordAsked,
    Refused,
    ReplicaLoad,
    WireEnd,
    WirePrompt,
    WireStart,
    WireToken,
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
from twostroke.types.recorded.verified_guesses import NO_GUESSES, guesses_of
from twostroke.types.request import Request
from twostroke.types.result import StepResult

NO_PROMISE = "Its first token cannot be promised in time here."
PREFILL_TOKENS = 256
"""The length of the prompt chunk from which `token_s` of ReplicaLoad is predicted: the chunk's predicted seconds
divided by this number."""
NOTHING_COUNTED = DiskCounts()
PREDICTED_S = 0.1
"""`token_s` of ReplicaLoad, the seconds for one prompt token, is predicted again when it is this many seconds old. It
is not predicted for each step, because this takes as long as sending a step's events."""

WireEvent = WireStart | WirePrompt | WireToken | WireEnd
News = Sequence[tuple[LinkId, tuple[WireEvent, ...]]]
"""The new events after a step, for each front (API server) that has any: its connection, and the events of its streams.
"""


class ReplicaStreams(Protocol):
    """The interface by which ReplicaCore queues requests, computes steps and gets their events. A stream is one request
    of a front (API server), known by its connection and number. Only one thread at a time may use it."""

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, or a plan is in flight."""

    @property
    def wants_memory(self) -> bool:
        """True while a request waits for a step or is in one, so that it may need the memory of fetched pages."""

    def open(self, link_id: LinkId) -> None:
        """Begins to serve a front (an API server) that has connected."""

    def serves(self, link_id: LinkId) -> bool:
        """Returns whether this connection belongs to a front (API server) that `open` has announced and `close` has not
        ended."""

    def why_not(self, request: Request) -> str:
        """Returns why the request cannot be computed here; an empty text where it can."""

    def has(self, link_id: LinkId, number: int) -> bool:
        """Returns whether the front (API server) has a stream of this number that has not ended."""

    def queue(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> Refused | None:
        """Queues a request for the next steps. Returns a Refused frame where the request is not taken."""

    def cancel(self, link_id: LinkId, number: int) -> None:
        """Ends a stream; it has no more events. Ending one beam ends all beams of its search."""

    def close(self, link_id: LinkId) -> None:
        """Ends all streams of a front (API server) that has disconnected."""

    def explanation(self, asked: RecordAsked) -> Explanation | None:
        """Returns where the time of an ended stream went; None where that is not known."""

    def step(self) -> News | None:
        """Computes one step. Returns the new events for each front (API server) that has any; None where nothing can be
        computed. An exception in the step ends the requests of this step and is reported to their fronts."""

    def settle(self) -> None:
        """Finishes the accounts of a step after its events were sent. Raises EngineStopped where three steps in a row
        fail and the probe fails too."""

    def load(self, page_rate: float, encode_s: float) -> ReplicaLoad:
        """Returns the load of the replica at this moment. page_rate: the rate of fetched pages in bytes a second.
        encode_s: the predicted seconds of the encodes that are left."""


def always_possible(_request: Request) -> str:
    """Returns an empty text: no request is refused. It is the default of `why_not`."""
    return ""


@dataclass(eq=False, slots=True)
class _Link:
    """The streams of one front (API server). numbers: the stream's number by request id. ids: the reverse. tokens: the
    number of tokens of prompt and resumed output, by request id.

    came_s: the time when its Assignment came, for each stream that has not had its first step.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    came_s: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)


class LoopStreams:
    """Computes the streams of a replica with a step loop. Satisfies ReplicaStreams. times: predicts the seconds of
    steps. explainer: explains where a request's time went, from the ledger into which this object records requests and
    steps. why_not: returns why a request cannot be computed here, or "". disk: the pages on a disk; None where no pages
    are kept on a disk."""

    def __init__(
        self,
        loop: StepLoop,
        times: StepTime,
        explainer: Explainer,
        why_not: Callable[[Request], str] = always_possible,
        disk: DiskPages | None = None,
    ) -> None:
        self._loop, self._book, self._clock = loop, loop.book, loop.clock
        self._times = times
        self.why_not, self._disk = why_not, disk
        self._explainer, self._ledger = explainer, explainer.ledger
        loop.listen(self._ledger, self._computed)
        self._links: dict[LinkId, _Link] = {}
        self._starts: dict[str, WireStart] = {}
        self._step_s = 0.0
        self._guesses = NO_GUESSES
        self._token_s, self._predicted_s = 0.0, -math.inf

    @property
    def has_work(self) -> bool:
        return self._loop.has_work

    @property
    def wants_memory(self) -> bool:
        gauges = self._book.gauges()
        return bool(gauges.running or gauges.waiting)

    def open(self, link_id: LinkId) -> None:
        self._links[link_id] = _Link()

    def serves(self, link_id: LinkId) -> bool:
        return link_id in self._links

    def has(self, link_id: LinkId, number: int) -> bool:
        return number in self._links[link_id].ids

    def queue(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> Refused | None:
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
            return Refused(work.number, str(error), error.retry_after_s)
        except (TwostrokeError, ValueError) as error:
            return Refused(work.number, str(error))
        first = requests[0].request_id  # the other beams are copies of the first one: they compute no prompt
        if work.promised and self._book.holds(first):
            self._book.abort(first, now)
            return Refused(work.number, NO_PROMISE, 0.0, may_hold=True)
        for request in requests:
            self._ledger.arrive(replace(request, arrival_s=now))  # the front counts the time before this moment
        for request_id, number in names.items():
            link.numbers[request_id], link.ids[number] = number, request_id
        link.came_s[first] = now
        link.tokens[first] = len(work.request.prompt_token_ids) + len(work.resumed)
        return None

    def cancel(self, link_id: LinkId, number: int) -> None:
        link = self._links.get(link_id)
        request_id = None if link is None else link.ids.get(number)
        if link is not None and request_id is not None:
            for event in self._ended(self._book.abort(request_id, self._clock())):
                _forget(link, event.request_id)

    def close(self, link_id: LinkId) -> None:
        link = self._links.pop(link_id, None)
        for request_id in [] if link is None else list(link.numbers):
            self._ended(self._book.abort(request_id, self._clock()))

    def explanation(self, asked: RecordAsked) -> Explanation | None:
        found = self._ledger.accounts.find(asked.group)
        own = [each for each in found if each.request_id.endswith(f".{asked.number}")]
        return self._explainer.explanation(own[-1]) if own else None

    def step(self) -> News | None:
        step = self._loop.step()
        if step is None:
            return None
        starts, self._starts = self._starts, {}
        return list(self._news(self._ended(step.events), starts))

    def settle(self) -> None:
        self._ledger.close_step(self._clock())
        self._loop.check_machine(EngineStopped("The replica has stopped.", why="Its machine fails.", fix="Restart it."))

    def load(self, page_rate: float, encode_s: float) -> ReplicaLoad:
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
            page_rate=page_rate,
            encode_s=encode_s,
            guesses=self._guesses,
            disk_waits=self._disk is not None and not self._disk.settled,
            disk_written_bytes=counts.written_bytes,
            disk_read_bytes=counts.read_bytes,
        )

    def _computed(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """The step loop calls this before it commits a step. Records the step in the ledger, corrects the predicted
        step times, and notes the streams whose first step it was."""
        self._ledger.step(plan, result, begin_s, commit_s)
        self._guesses = self._guesses.plus(guesses_of(plan, result))
        self._step_s = commit_s - begin_s
        if plan.sequences and not (result.cold or result.faulty):
            self._times.observe(plan.sequences, self._step_s - result.pieces_s, commit_s)
        for link in self._links.values():
            for sequence in plan.computed if link.came_s else ():
                request_id = sequence.request.request_id
                if (came_s := link.came_s.pop(request_id, None)) is not None:
                    waited_s, disk = max(0.0, begin_s - came_s), self._ledger.disk_of(request_id)
                    number = link.numbers[request_id]
                    self._starts[request_id] = WireStart(number, waited_s, sequence.start, disk.tokens, disk.seconds)

    def _ended(self, events: Sequence[Event]) -> Sequence[Event]:
        """Reports the ends among a step's events to the ledger, and returns all events."""
        for event in events:
            if isinstance(event, FinishedEvent):
                self._ledger.finish(event)
        return events

    def _news(
        self, events: Sequence[Event], starts: dict[str, WireStart]
    ) -> Iterator[tuple[LinkId, tuple[WireEvent, ...]]]:
        for link_id, link in self._links.items():
            begun = [start for name, start in starts.items() if name in link.numbers]
            found = [wire for event in events if (wire := wire_event(event, link.numbers)) is not None]
            if begun or found:
                yield link_id, (*begun, *found)
            for end in found:
                if isinstance(end, WireEnd):
                    _forget(link, link.ids[end.number])


def _forget(link: _Link, request_id: str) -> None:
    del link.ids[link.numbers.pop(request_id)]
    link.came_s.pop(request_id, None)
    link.tokens.pop(request_id, None)
