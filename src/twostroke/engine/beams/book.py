"""A scheduler that knows beam searches: each beam is one sequence. At the end of the search, each beam's request gets
one of the best answers.

A beam search is a group of requests with one group id, one request for each beam. The first request of the group
computes the prompt. Then each request becomes a beam, and the scheduler pauses it after each token. When all beams of
the group have computed their tokens, the search decides which beams go on (`Steering`). A beam that is dropped becomes
a copy of another one: it shares the other's full pages. When the search is done, each request gets one answer, best
first. Each token of an answer has the time at which it was computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from msgspec import Struct, field

from twostroke.engine.beams.search import BeamSearch, BeamText, FinishedBeam, Rules
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.engine.scheduler.parking import Parking
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.types.event import Event, FinishedEvent, TokenEvent
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult

TextOf = Callable[[Request], BeamText | None]
"""Returns the BeamText of a request with no tokens yet; None when the request has no stop strings."""

TEXT_FAULT = "The text of a beam could not be made."
TOO_FEW = "the search found fewer answers than were asked for: the request allows no more"


class _Group(Struct):
    """One beam search. beams: the requests whose sequences are the search's beams, in the search's order. computed: the
    token that the last step sampled for each beam, keyed by request id. ended: the events of requests whose sequence
    the scheduler has ended, keyed by request id."""

    search: BeamSearch
    members: list[Request]
    beams: list[Request]
    computed: dict[str, SampledToken] = field(default_factory=dict)
    ended: dict[str, FinishedEvent] = field(default_factory=dict)


class BeamBook:
    """Satisfies Planner and RequestBook. It runs beam searches on top of a scheduler; requests without beam search go
    to the scheduler as they are. text_of: makes the text of a search's first beam."""

    def __init__(self, scheduler: Scheduler, text_of: TextOf) -> None:
        self._scheduler, self._text_of = scheduler, text_of
        self._groups: dict[str, _Group] = {}

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def gauges(self) -> Gauges:
        return self._scheduler.gauges()

    def schedule(self, now: float) -> Plan | None:
        return self._scheduler.schedule(now)

    def add(self, request: Request) -> None:
        """Queue a request. All requests of one beam search (they have the same group id) must be added before the next
        step. Raises the errors of `Scheduler.add`."""
        group = self._groups.get(request.group_id)
        if not request.steered:
            self._scheduler.add(request)
        elif group is None:
            search = BeamSearch(_rules(request), self._text_of(request))
            self._scheduler.add(request)
            self._groups[request.group_id] = _Group(search, [request], [request])
        else:
            group.members.append(request)

    def holds(self, request_id: str) -> bool:
        """Returns True when a request waits although the scheduler cannot promise it the TTFT of its objective."""
        return self._scheduler.holds(request_id)

    def abort(self, request_id: str, now: float) -> list[Event]:
        """End a request. Ending one beam ends its whole group."""
        return self.finish(request_id, FinishReason.ABORT, now)

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """End a request for a reason that the scheduler cannot see, such as a stop string. Ending one beam ends its
        whole group."""
        group = self._group_of(request_id) if self._groups else None
        if group is None:
            return self._scheduler.finish(request_id, reason, now, num_output_tokens)
        return self._end(group, FinishedEvent(request_id, reason, now, 0, 0, 0, 0, None), now)

    @property
    def parking(self) -> Parking:
        """The object that pauses requests whose clients have stopped reading. It ignores calls for beams, which are
        never paused."""
        return self._scheduler.parking

    def commit(self, plan: Plan, result: StepResult, now: float) -> list[Event]:
        """Take in the result of a plan, and continue the searches whose beams are all computed."""
        events = self._scheduler.commit(plan, result, now)
        if not self._groups:
            return events
        outgoing: list[Event] = []
        touched: dict[str, _Group] = {}
        broken: list[tuple[_Group, FinishedEvent]] = []
        groups = {beam.request_id: group for group in self._groups.values() for beam in group.beams}
        for event in events:
            group = groups.get(event.request_id)
            if group is None:
                outgoing.append(event)
            elif isinstance(event, TokenEvent):
                (group.computed[event.request_id],) = result.sampled[event.request_id]
                touched[group.members[0].group_id] = group
            elif isinstance(event, FinishedEvent):
                group.ended[event.request_id] = event
                broken.append((group, event))
            else:
                outgoing.append(event)  # an event of the prompt itself
        for group, event in broken:
            if group.members[0].group_id in self._groups:
                outgoing += self._end(group, event, now)
        for name, group in touched.items():
            if name in self._groups and len(group.computed) == len(group.beams):
                outgoing += self._go_on(group, now)
        return outgoing

    def _group_of(self, request_id: str) -> _Group | None:
        found = (group for group in self._groups.values() if any(m.request_id == request_id for m in group.members))
        return next(found, None)

    def _go_on(self, group: _Group, now: float) -> list[Event]:
        """Continue a search whose beams are all computed: begin its next beams, or give its answers."""
        search, beams = group.search, group.beams
        try:
            search.step([group.computed[beam.request_id] for beam in beams], now)
        except Exception:  # an error in the text of one request must not end the others
            return self._end(group, FinishedEvent("", FinishReason.ERROR, now, 0, 0, 0, 0, None, error=TEXT_FAULT), now)
        group.computed.clear()
        if search.done:
            return self._give(group, now)
        group.beams = _continued(search, beams, group.members)
        before = {beam.request_id for beam in beams}
        kept = {beams[beam.place].request_id for beam in search.beams}
        for request, beam in zip(group.beams, search.beams, strict=True):
            source = beams[beam.place]
            if request is not source:
                self._scheduler.steering.branch(request, source.request_id)
        for request, beam in zip(group.beams, search.beams, strict=True):
            if beam.last is not None:
                self._scheduler.steering.extend(request.request_id, beam.last.token.token_id)
        for request_id in before - kept - {beam.request_id for beam in group.beams}:
            self._scheduler.finish(request_id, FinishReason.STOP, now)
        return []

    def _give(self, group: _Group, now: float) -> list[Event]:
        """Returns the events that give each request of a finished beam search one answer, best first."""
        self._close(group, FinishReason.STOP, now)
        outgoing: list[Event] = []
        for rank, request in enumerate(group.members):
            end = self._ended(group, request, now)
            if rank < len(group.search.answers):
                outgoing += _answer_events(request, group.search.answers[rank], end)
            elif rank >= request.params.n:
                outgoing.append(replace(end, reason=FinishReason.STOP, num_output_tokens=0, score=-math.inf))
            else:
                outgoing.append(replace(end, reason=FinishReason.ERROR, error=TOO_FEW))
        return outgoing

    def _end(self, group: _Group, why: FinishedEvent, now: float) -> list[Event]:
        """Returns the events that end all requests of a group for the same reason, without an answer."""
        self._close(group, why.reason, now)
        ends = [self._ended(group, request, now) for request in group.members]
        reason, error, late = why.reason, why.error, why.retry_after_s
        return [
            replace(end, reason=reason, error=error, retry_after_s=late, num_output_tokens=group.search.length)
            for end in ends
        ]

    def _close(self, group: _Group, reason: FinishReason, now: float) -> None:
        """End a group and all its sequences."""
        del self._groups[group.members[0].group_id]
        for request in group.members:
            events = self._scheduler.finish(request.request_id, reason, now)
            group.ended |= {event.request_id: event for event in events if isinstance(event, FinishedEvent)}

    def _ended(self, group: _Group, request: Request, now: float) -> FinishedEvent:
        """Returns the event with which the scheduler ended a request of the group. Makes one for a request that the
        scheduler never got, because the search ended before it became a beam."""
        found = group.ended.get(request.request_id)
        length = len(request.prompt_token_ids)
        return found or FinishedEvent(request.request_id, FinishReason.STOP, now, length, 0, 0, 0, None)


def _rules(request: Request) -> Rules:
    params = request.params
    return Rules(
        params.num_answers,
        request.end_token_ids,
        request.max_tokens,
        params.length_penalty,
        params.early_stopping,
    )


def _continued(search: BeamSearch, beams: list[Request], members: list[Request]) -> list[Request]:
    """Returns, for each of the search's new beams, the request that computes it. The first new beam that continues an
    old beam takes over that beam's sequence; further new beams take requests that have no beam."""
    placed: list[Request | None] = []
    kept: set[str] = set()
    for beam in search.beams:
        source = beams[beam.place]
        placed.append(None if source.request_id in kept else source)
        kept.add(source.request_id)
    free = iter([member for member in members if member.request_id not in kept])
    return [next(free) if request is None else request for request in placed]


def _answer_events(request: Request, answer: FinishedBeam, end: FinishedEvent) -> Iterable[Event]:
    """Returns the events of one answer; the last one ends it. The events hold all tokens of the answer; a stop string
    is cut off later, where the tokens become text."""
    asked = request.params.logprobs
    tokens = [
        (each.token.token_id, None if asked is None else replace(each.token, top=each.token.top[:asked]), each.at_s)
        for each in answer.tokens()
    ]
    last = tokens.pop() if answer.ended else None
    for token_id, logprob, at_s in tokens:
        yield TokenEvent(request.request_id, token_id, logprob, at_s)
    yield replace(
        end,
        reason=FinishReason.STOP if answer.ended or answer.stopped else FinishReason.LENGTH,
        num_output_tokens=len(tokens),
        stopped_by=None if last is None else last[0],
        end_logprob=None if last is None else last[1],
        score=answer.score,
    )
