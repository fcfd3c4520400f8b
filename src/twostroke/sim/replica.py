"""One engine under a virtual clock: the production heart, stepped as its shells step it.

Knows: EngineCore, the scheduler, predicted steps.
Must not know: workloads, other replicas, who routes.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from twostroke.engine.core import EngineCore, Step
from twostroke.engine.executor import Executor
from twostroke.scheduler.steady import SteadyDecode
from twostroke.sim.clock import VirtualClock
from twostroke.sim.predicted import PredictedExecutor, invented_tokens
from twostroke.sim.setup import ReplicaSetup
from twostroke.types.errors import OutOfMemory, Overloaded
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult

REFUSED = "refused: it would have been late"
MOST_AHEAD = 256
"""Steps that are looked ahead at a time; an arrival among them throws the rest away."""


MOST_ENDS = 4096
"""Ends of steps that are kept for streams to be told."""


class Listener(Protocol):
    """Who hears what a replica does, in order of its time; of a stream's tokens, when somebody must know them."""

    def on_event(self, replica: Replica, event: Event) -> None:
        """A token, or the end of a request."""

    def on_run(self, replica: Replica, request: Request, times_s: array[float]) -> None:
        """The request got one token at each of these times; told before anything else is told of it."""


class StepWatch(Protocol):
    """Who wants each single step."""

    def on_arrival(self, replica: Replica, request: Request) -> None:
        """A request enters the scheduler's queue."""

    def on_computed(self, replica: Replica, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """A plan was computed and is not committed yet: what it holds of live sequences is as it was planned."""

    def on_step(self, replica: Replica, step: Step, end_s: float) -> None:
        """One step, after its events."""


@dataclass(slots=True)
class _Run:
    """Steady steps that are known and not yet done. times_s: their ends; begin_s: of the first."""

    begin_s: float
    times_s: list[float]

    def begun_before(self, at_s: float) -> int:
        """How many of them begin before at_s; times rise, but not strictly where a step costs nothing."""
        if self.begin_s >= at_s:
            return 0
        count = 1
        while count < len(self.times_s) and self.times_s[count - 1] < at_s:
            count += 1
        return count


class _Watched:
    """An executor that tells what was computed."""

    def __init__(self, inner: Executor, replica: Replica, watch: StepWatch) -> None:
        self._inner, self._replica, self._watch = inner, replica, watch

    def execute(self, plan: Plan) -> StepResult:
        begin_s = self._replica.clock.now_s
        result = self._inner.execute(plan)
        self._watch.on_computed(self._replica, plan, result, begin_s, self._replica.clock.now_s)
        return result


class Replica:
    """Requests that arrive during a step are taken in when it ends, as the engine's step thread does it.

    busy_s: time spent in steps. steps: their number. outstanding: requests submitted and not ended; arrived or not.
    skips: steps in which nothing but one more token for each stream can happen are done many at a time, with the same
    result (tests/sim/test_steady.py). A watch wants to see each step, so with one nothing is skipped.
    """

    def __init__(
        self, name: str, setup: ReplicaSetup, listener: Listener, watch: StepWatch | None = None, *, skips: bool = True
    ) -> None:
        self.name = name
        self.setup = setup
        self.clock = VirtualClock()
        self.cache, self.scheduler = setup.heart()
        self.busy_s = 0.0
        self.steps = 0
        self.outstanding: dict[str, Request] = {}
        self._executor = executor = PredictedExecutor(setup.cost, self.clock)
        self._core = EngineCore(self.scheduler, executor if watch is None else _Watched(executor, self, watch))
        self._listener = listener
        self._watch = watch
        skipping = skips and watch is None
        self._steady = self.scheduler.look_ahead(invented_tokens, self._streamed) if skipping else None
        self._ends_s = array("d")  # of the streams' steps from _first_end on
        self._first_end = 0
        self._run: _Run | None = None
        self._inbox: deque[Request] = deque()

    def submit(self, request: Request) -> None:
        """A request arrives at request.arrival_s, not before the last one. Raises OutOfMemory where it never fits."""
        tokens = len(request.prompt_token_ids) + request.max_tokens
        if not self.setup.can_serve(len(request.prompt_token_ids), request.max_tokens):
            raise OutOfMemory(
                f"A request of {tokens:,} tokens is longer than context or KV pool ({self.setup.most_tokens:,})."
            )
        self.settle(request.arrival_s)
        self.outstanding[request.request_id] = request
        self._inbox.append(request)

    def settle(self, at_s: float) -> None:
        """Do what was looked ahead and begins before at_s, so that queues and cache are as they are at that time."""
        if self._run is not None:
            self._do_run(self._run.begun_before(at_s))

    @property
    def next_s(self) -> float:
        """Before this time nothing can be seen to happen; infinity where there is nothing to do."""
        if self._run is not None:
            return self._run.times_s[-1]
        if self.scheduler.has_work:
            return self.clock.now_s
        return max(self.clock.now_s, self._inbox[0].arrival_s) if self._inbox else math.inf

    def run_until(self, end_s: float) -> None:
        """Run every step that begins before end_s, but for such as nothing can be seen of; the last may end later."""
        while self.next_s < end_s:
            self.turn()

    def turn(self) -> None:
        """Do the steps that were looked ahead, or look ahead, or run one step."""
        if self._run is not None:
            self._do_run(len(self._run.times_s))
            return
        if not self.scheduler.has_work:
            self.clock.advance_to(self._inbox[0].arrival_s)
        begin_s = self.clock.now_s
        while self._inbox and self._inbox[0].arrival_s <= begin_s:
            request = self._inbox.popleft()
            self._add(request)
        if not self.scheduler.has_work:
            return
        self._run = self._look_ahead()
        if self._run is not None:
            return
        if self._steady is not None and self._steady.begin_one():
            self._step_beside(self._steady, begin_s)
        else:
            self._step(begin_s)

    def _add(self, request: Request) -> None:
        """As the engine's shell: who is refused has ended."""
        try:
            self.scheduler.add(request)
        except Overloaded:
            del self.outstanding[request.request_id]
            tokens = len(request.prompt_token_ids)
            end = FinishedEvent(
                request.request_id, FinishReason.ERROR, self.clock.now_s, tokens, 0, 0, 0, None, error=REFUSED
            )
            self._listener.on_event(self, end)
            return
        if self._watch is not None:
            self._watch.on_arrival(self, request)

    def _step(self, begin_s: float) -> None:
        step = self._core.step(self.clock)
        if step is None:
            raise RuntimeError("work is left and nothing can be planned")
        end_s = self.clock.now_s
        self.busy_s += end_s - begin_s
        self.steps += 1
        self._tell(step.events)
        if self._watch is not None:
            self._watch.on_step(self, step, end_s)

    def _step_beside(self, steady: SteadyDecode, begin_s: float) -> None:
        """One step in which others compute beside streams, which have begun it."""
        plan = self.scheduler.schedule_beside(steady, begin_s)
        result = self._executor.execute_beside(steady.positions(), plan)
        end_s = self.clock.now_s
        self._ends_s.append(end_s)
        ended = self.scheduler.skip(1, end_s)
        events = [] if plan is None else self.scheduler.commit(plan, result, end_s)
        self.busy_s += end_s - begin_s
        self.steps += 1
        self._tell(ended)
        self._tell(events)

    def _tell(self, events: Iterable[Event]) -> None:
        on_event = self._listener.on_event
        for event in events:
            if isinstance(event, FinishedEvent):
                del self.outstanding[event.request_id]
                if event.retry_after_s is not None:
                    event = replace(event, error=REFUSED)
            on_event(self, event)

    def _look_ahead(self) -> _Run | None:
        """The steady steps from here to the next arrival."""
        if self._steady is None:
            return None
        if len(self._ends_s) >= MOST_ENDS:
            self._steady.settle()
            self._first_end += len(self._ends_s)
            del self._ends_s[:]
        steps = self._steady.steps(MOST_AHEAD)
        if steps == 0:
            return None
        until_s = self._inbox[0].arrival_s if self._inbox else math.inf
        now_s = begin_s = self.clock.now_s
        times: list[float] = []
        for seconds in self.setup.cost.decode_run(self._steady.positions(), steps):
            if now_s >= until_s:
                break
            now_s += seconds
            times.append(now_s)
        return _Run(begin_s, times)

    def _do_run(self, steps: int) -> None:
        """Do the first `steps` of what was looked ahead, and forget the others."""
        run, self._run = self._run, None
        if run is None or self._steady is None or steps == 0:
            return
        times = run.times_s if steps == len(run.times_s) else run.times_s[:steps]
        self._ends_s.extend(times)
        ended = self.scheduler.skip(steps, times[-1])
        for before_s, after_s in zip([run.begin_s, *times], times, strict=False):
            self.busy_s += after_s - before_s
        self.steps += steps
        self.clock.advance_to(times[-1])
        self._tell(ended)

    def _streamed(self, request: Request, first: int, end: int) -> None:
        """See scheduler.streams.Told."""
        times_s = self._ends_s[first - self._first_end : end - self._first_end]
        self._listener.on_run(self, request, times_s)
