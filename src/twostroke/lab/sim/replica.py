"""One engine under a virtual clock: the production scheduler and cache, stepped as the engine steps them."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore, Step
from twostroke.engine.disk.contract import DiskCounts
from twostroke.engine.disk.disk_book import DiskBook
from twostroke.engine.disk.disk_pages import WAIT_S
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.policy import ArrivalPolicy, Policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.lab.sim.ahead.scheduler import LookAheadScheduler
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.disk import AttachedDisk
from twostroke.lab.sim.predicted import invented_tokens
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.types.errors import OutOfMemory, Overloaded
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.images import EncodedTiles
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult

REFUSED = "refused: it would have been late"
MOST_AHEAD = 256
"""The most steps that are simulated in advance at a time. An arrival among these steps discards the rest."""


MOST_ENDS = 4096
"""How many end times of steps are kept in memory. From this number on, the tokens of all streams are reported to the
listener with their times, and the times are dropped."""


class Listener(Protocol):
    """Gets the events of a replica in order of time. The tokens of a stream may be reported late and many together."""

    def on_event(self, replica: Replica, event: Event) -> None:
        """Takes a token, or the end of a request."""

    def on_run(self, replica: Replica, request: Request, times_s: array[float]) -> None:
        """Takes the times at which the request got one token each. It is called before later events of the request."""


class StepWatch(Protocol):
    """Observes a replica step by step, for example for a trace. A replica with a watch never does several steps at
    once."""

    def on_arrival(self, replica: Replica, request: Request) -> None:
        """Called when a request enters the scheduler's queue."""

    def on_computed(self, replica: Replica, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """Called when a plan was computed and is not committed yet. The scheduler's sequences are still in the state in
        which they were planned."""

    def on_step(self, replica: Replica, step: Step, end_s: float) -> None:
        """Called with one step, after its events."""


@dataclass(slots=True)
class _Run:
    """Steps that were simulated in advance and may still be discarded. times_s: the end of each step. begin_s: the
    beginning of the first step."""

    begin_s: float
    times_s: list[float]

    def begun_before(self, at_s: float) -> int:
        """Returns how many of the steps begin before at_s. Times never decrease, but may be equal where a step costs
        nothing."""
        if self.begin_s >= at_s:
            return 0
        count = 1
        while count < len(self.times_s) and self.times_s[count - 1] < at_s:
            count += 1
        return count


def _untold(_request_id: str, _tokens: int, _seconds: float) -> None:
    """Drops the report that a request got tokens from a disk. A simulation has no reader for it."""


class Replica:
    """One simulated engine. Requests that arrive during a step are taken in when it ends, as the engine's step thread
    does.

    busy_s: the seconds spent in steps. steps: the number of steps. last_step_s: the seconds of the last step.
    outstanding: requests submitted and not ended, whether they have arrived or not.

    skips: whether steps in which each stream gets one token, and nothing else happens, may be simulated many at a time.
    The result is the same (tests/sim/test_steady.py). A replica with a StepWatch (an observer of each step), adapters,
    pipeline stages, images or a disk always simulates its steps one by one.
    """

    def __init__(
        self, name: str, setup: ReplicaSetup, listener: Listener, watch: StepWatch | None = None, *, skips: bool = True
    ) -> None:
        self.name = name
        self.setup = setup
        self.clock = VirtualClock()
        self._ahead: LookAheadScheduler | None = None
        plain = setup.adapters or setup.stages or setup.images or setup.disk
        self.cache, self.scheduler = setup.heart(
            self._looking_ahead if skips and watch is None and not plain else Scheduler
        )
        self.busy_s = 0.0
        self.steps = 0
        self.last_step_s = 0.0
        self.outstanding: dict[str, Request] = {}
        self._known_tiles: set[int] = set()
        executor, flight = setup.executor(self.clock, self._beside, self._known_tiles)
        self._disk = self._attached_disk()
        self._book: Scheduler | DiskBook = self.scheduler
        if self._disk is not None:
            self._book = DiskBook(self.scheduler, self._disk.pages, _untold)
        self._waits = False  # True: nothing can be computed before the disk has made progress
        self._core = EngineCore(self._book, executor, self._computed, flight)
        self._listener = listener
        self._watch = watch
        self._ends_s = array("d")  # end times of the streams' steps, from step _first_end on
        self._first_end = 0
        self._run: _Run | None = None
        self._inbox: deque[Request] = deque()

    def submit(self, request: Request) -> None:
        """Takes a request that arrives at request.arrival_s, which is not before the arrival of the last one. Raises
        OutOfMemory for a request that can never fit."""
        tokens = len(request.prompt_token_ids) + request.max_tokens
        if not self.setup.can_serve(len(request.prompt_token_ids), request.max_tokens):
            raise OutOfMemory(
                f"A request of {tokens:,} tokens is longer than context or KV pool ({self.setup.most_tokens:,})."
            )
        self.settle(request.arrival_s)
        self.outstanding[request.request_id] = request
        self._inbox.append(request)

    def take_rows(self, request: Request) -> None:
        """Marks the request's images as encoded: their embeddings have come from another replica."""
        keys = frozenset(span.tile.key for span in request.images)
        self._known_tiles |= keys
        self.scheduler.images.done(EncodedTiles(keys), ())

    def settle(self, at_s: float) -> None:
        """Does those steps that were simulated in advance and begin before at_s. Queues and cache then have the state
        of that time."""
        if self._run is not None:
            self._do_run(self._run.begun_before(at_s))

    @property
    def unread_tokens(self) -> int:
        """The number of prompt tokens that are not computed yet."""
        return self.scheduler.unread_tokens + sum(len(request.prompt_token_ids) for request in self._inbox)

    @property
    def next_s(self) -> float:
        """The earliest time at which something can happen; infinity where there is nothing to do."""
        if self._run is not None:
            return self._run.times_s[-1]
        arrival_s = self._inbox[0].arrival_s if self._inbox else math.inf
        if self._book.has_work:
            return max(self.clock.now_s, min(arrival_s, self._disk_s)) if self._waits else self.clock.now_s
        return max(self.clock.now_s, arrival_s)

    @property
    def disk_counts(self) -> DiskCounts | None:
        """The counts of what the disk has done; None without a disk."""
        return None if self._disk is None else self._disk.pages.counts

    @property
    def _disk_s(self) -> float:
        """The time at which an engine that waits for its disk asks again whether data have come."""
        return math.inf if self._disk is None else min(self._disk.next_s, self.clock.now_s + WAIT_S)

    def turn(self) -> None:
        """Does the steps that were simulated in advance, if there are any. Otherwise simulates some in advance, or runs
        one step where that is not possible."""
        if self._run is not None:
            self._do_run(len(self._run.times_s))
            return
        self.clock.advance_to(self.next_s)
        self._waits = False
        begin_s = self.clock.now_s
        while self._inbox and self._inbox[0].arrival_s <= begin_s:
            request = self._inbox.popleft()
            self._add(request)
        if isinstance(self._book, DiskBook):
            self._book.before_step()
        if not self._book.has_work:
            return
        self._run = self._look_ahead()
        if self._run is None:
            self._step()

    def _add(self, request: Request) -> None:
        """Adds a request as the engine does. A refused request ends at once."""
        try:
            self._book.add(request)
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

    def _step(self) -> None:
        step = self._core.step(self.clock)
        if step is None and self._disk is not None and self._disk.pages.has_work:
            self._waits = True
            return
        if step is None:
            raise RuntimeError("work is left and nothing can be planned")
        self.last_step_s = step.commit_s - step.begin_s
        self.busy_s += self.last_step_s
        self.steps += 1
        self._tell(step.events)
        if self._watch is not None:
            self._watch.on_step(self, step, step.commit_s)

    def _attached_disk(self) -> AttachedDisk | None:
        disk, limits = self.setup.disk, self.setup.limits
        return None if disk is None else disk.attach(self.cache, self.setup.cost, limits.max_step_tokens, self.clock)

    def _computed(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """Calls the watch, and notes the end time of the step if it computed streams. The core calls this between the
        computation of a step and its commit."""
        if self._watch is not None:
            self._watch.on_computed(self, plan, result, begin_s, commit_s)
        if self._beside():
            self._ends_s.append(commit_s)

    def _beside(self) -> Sequence[int]:
        """Returns the positions that the current step computes for streams, the sequences that only get one token a
        step. To save time, LookAheadScheduler does not list them in the plan. The executor needs them to predict the
        step's time."""
        return () if self._ahead is None else self._ahead.beside

    def _looking_ahead(self, cache: CacheManager, limits: SchedulerLimits, policy: Policy | None = None) -> Scheduler:
        """Makes the scheduler. It is one that does many steps at once (LookAheadScheduler) where requests go in order
        of arrival, and where pages stay until their sequence ends. Other policies and caches can change something
        between any two steps."""
        if (policy is not None and not isinstance(policy, ArrivalPolicy)) or not cache.pages_stay:
            return Scheduler(cache, limits, policy)
        self._ahead = LookAheadScheduler(cache, limits, policy, invented_tokens, self._streamed)
        return self._ahead

    def _tell(self, events: Iterable[Event]) -> None:
        on_event = self._listener.on_event
        for event in events:
            if isinstance(event, FinishedEvent):
                del self.outstanding[event.request_id]
                if event.retry_after_s is not None:
                    event = replace(event, error=REFUSED)
            on_event(self, event)

    def _look_ahead(self) -> _Run | None:
        """Returns the next steps, up to the next arrival, in which each stream gets one token and nothing else happens.
        Returns None where the next step may not be of this kind."""
        if self._ahead is None:
            return None
        steady = self._ahead.steady
        if len(self._ends_s) >= MOST_ENDS:
            steady.settle()
            self._first_end += len(self._ends_s)
            del self._ends_s[:]
        steps = steady.steps(MOST_AHEAD)
        if steps == 0:
            return None
        until_s = self._inbox[0].arrival_s if self._inbox else math.inf
        now_s = begin_s = self.clock.now_s
        times: list[float] = []
        for seconds in self.setup.cost.decode_run(steady.positions(), steps):
            if now_s >= until_s:
                break
            now_s += seconds
            times.append(now_s)
        return _Run(begin_s, times)

    def _do_run(self, steps: int) -> None:
        """Commits the first `steps` of the steps that _look_ahead has predicted: gives the streams their tokens and
        advances the clock. The other predicted steps are discarded."""
        run, self._run = self._run, None
        if run is None or self._ahead is None or steps == 0:
            return
        times = run.times_s if steps == len(run.times_s) else run.times_s[:steps]
        self._ends_s.extend(times)
        ended = self._ahead.skip(steps, times[-1])
        for before_s, after_s in zip([run.begin_s, *times], times, strict=False):
            self.last_step_s = after_s - before_s
            self.busy_s += self.last_step_s
        self.steps += steps
        self.clock.advance_to(times[-1])
        self._tell(ended)

    def _streamed(self, request: Request, first: int, end: int) -> None:
        times_s = self._ends_s[first - self._first_end : end - self._first_end]
        self._listener.on_run(self, request, times_s)
