"""The heart of a replica behind frames: Assignment in, StepNews out. No socket, no thread, no text.

Knows: scheduler, executor, frames.
Must not know: sockets, who listens, tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from twostroke.cost.shape import Segment
from twostroke.engine.core import EngineCore
from twostroke.engine.executor import Executor
from twostroke.engine.forgive import ForgivingExecutor
from twostroke.fleet.translate import request_of, wire_event
from twostroke.fleet.wire import (
    Assignment,
    Refused,
    ReplicaLoad,
    StepNews,
    WireEnd,
    WirePrompt,
    WireStart,
    WireToken,
)
from twostroke.scheduler.scheduler import Scheduler
from twostroke.scheduler.step_time import StepTime
from twostroke.types.errors import EngineStopped, Overloaded, TwostrokeError
from twostroke.types.event import Event
from twostroke.types.grammar import TokenMask
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

MAX_FAULTS_IN_A_ROW = 3
PREFILL_TOKENS = 256
"""The predicted seconds of a prompt's token are those of a chunk of this size."""

LinkId = int


class Probe(Protocol):
    """Raises where the machine itself is broken."""

    def __call__(self) -> None:
        """Ask."""


@dataclass(eq=False, slots=True)
class _Link:
    """A front's streams: their numbers by request id, and ids by number. tokens: of prompt and resumed output.

    came_s: when it was assigned, of each stream that has not started.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    came_s: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)


class ReplicaCore:
    """One thread at a time. clock: seconds. times: predicts steps. report: hears of every fault in full."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Callable[[], float],
        times: StepTime,
        report: Callable[[BaseException], None],
        probe: Probe,
    ) -> None:
        self._scheduler = scheduler
        self._forgiving = ForgivingExecutor(executor, report)
        self._core = EngineCore(scheduler, self._forgiving, self._computed)
        self._clock = clock
        self._times = times
        self._probe = probe
        self._links: dict[LinkId, _Link] = {}
        self._starts: dict[str, WireStart] = {}
        self._step_s = 0.0

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""
        return self._scheduler.has_work

    def open(self, link_id: LinkId) -> None:
        """A front is there."""
        self._links[link_id] = _Link()

    def work(self, link_id: LinkId, work: Assignment, mask: TokenMask | None) -> Refused | None:
        """Queue a request. mask: of its grammar, with the resumed tokens taken in."""
        link = self._links.get(link_id)
        if link is None:
            return None
        if work.number in link.ids:
            return Refused(work.number, "A stream of this number is running.")
        request_id, now = f"{link_id}/{work.number}", self._clock()
        try:
            self._scheduler.add(request_of(work, request_id, mask, now))
        except Overloaded as error:
            return Refused(work.number, str(error), error.retry_after_s)
        except (TwostrokeError, ValueError) as error:
            return Refused(work.number, str(error))
        link.numbers[request_id], link.ids[work.number] = work.number, request_id
        link.came_s[request_id] = now
        link.tokens[request_id] = len(work.request.prompt_token_ids) + len(work.resumed)
        return None

    def cancel(self, link_id: LinkId, number: int) -> None:
        """End a stream; nothing more is told of it."""
        link = self._links.get(link_id)
        request_id = None if link is None else link.ids.get(number)
        if link is not None and request_id is not None:
            self._scheduler.abort(request_id, self._clock())
            _forget(link, request_id)

    def close(self, link_id: LinkId) -> None:
        """A front is gone: its streams end."""
        link = self._links.pop(link_id, None)
        for request_id in [] if link is None else list(link.numbers):
            self._scheduler.abort(request_id, self._clock())

    def step(self) -> list[tuple[LinkId, StepNews]] | None:
        """One step, and what each front is told of it; None where nothing can be computed.

        A fault ends the requests of its plan. Raises EngineStopped where three steps in a row fail and the probe does.
        """
        step = self._core.step(self._clock)
        if step is None:
            return None
        starts, self._starts = self._starts, {}
        news = self._news(step.events, starts)
        if self._forgiving.faults_in_a_row >= MAX_FAULTS_IN_A_ROW:
            self._ask_probe()
        return news

    def load(self) -> ReplicaLoad:
        """As it is now."""
        gauges = self._scheduler.gauges()
        pending = sum(sum(link.tokens[name] for name in link.came_s) for link in self._links.values())
        prompt_s = self._times.usual_s([Segment.prefill(0, PREFILL_TOKENS, True)])
        return ReplicaLoad(
            running=gauges.running,
            waiting=gauges.waiting,
            pages_free=gauges.pages_free,
            pages_used=gauges.pages_used,
            pages_cached=gauges.pages_cached,
            prefill_tokens=pending,
            token_s=prompt_s / PREFILL_TOKENS,
            step_s=self._step_s,
            preemptions=gauges.preemptions_total,
            query_tokens=gauges.prefix_query_tokens,
            hit_tokens=gauges.prefix_hit_tokens,
            waste_tokens=gauges.waste_tokens,
        )

    def _ask_probe(self) -> None:
        try:
            self._probe()
        except Exception as error:
            raise EngineStopped("The replica has stopped.", why="Its machine fails.", fix="Restart it.") from error
        self._forgiving.faults_in_a_row = 0

    def _computed(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """Before a step is committed: learn from its time; note the sequences that it computed for the first time."""
        self._step_s = commit_s - begin_s
        if not (result.cold or result.failed):
            self._times.observe(plan.sequences, self._step_s, commit_s)
        for link in self._links.values():
            for sequence in plan.sequences if link.came_s else ():
                request_id = sequence.request.request_id
                if (came_s := link.came_s.pop(request_id, None)) is not None:
                    waited_s = max(0.0, begin_s - came_s)
                    self._starts[request_id] = WireStart(link.numbers[request_id], waited_s, sequence.start)

    def _news(self, events: Iterable[Event], starts: dict[str, WireStart]) -> list[tuple[LinkId, StepNews]]:
        told: list[tuple[LinkId, StepNews]] = []
        load = self.load()
        events = list(events)
        for link_id, link in self._links.items():
            found = [wire for event in events if (wire := wire_event(event, link.numbers)) is not None]
            started = tuple(start for name, start in starts.items() if name in link.numbers)
            if found or started:
                ended = tuple(wire for wire in found if isinstance(wire, WireEnd))
                news = StepNews(
                    load,
                    started,
                    tuple(wire for wire in found if isinstance(wire, WirePrompt)),
                    tuple(wire for wire in found if isinstance(wire, WireToken)),
                    ended,
                )
                for end in ended:
                    _forget(link, link.ids[end.number])
                told.append((link_id, news))
        return told


def _forget(link: _Link, request_id: str) -> None:
    del link.ids[link.numbers.pop(request_id)]
    link.came_s.pop(request_id, None)
    del link.tokens[request_id]
