"""A front and replicas in one process under a virtual clock: frames are delayed, connections cut, replicas die."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twostroke.cache.manager import CacheManager
from twostroke.cluster.replica_core import ReplicaCore
from twostroke.fleet.fleet import ReplicaFleet
from twostroke.fleet.wire import Arithmetic, Assignment, Beat, Cancel, Frame, FrameReader, ReplicaFacts, encode
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.scheduler.scheduler import Scheduler
from twostroke.types.event import Event, FinishedEvent, TokenEvent
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult, TokenLogprob
from twostroke.types.sampling_params import SamplingParams

PAGE_TOKENS = 4
VOCABULARY = 50
ARITHMETIC = Arithmetic(1, "int8", "int8", "whole", "t", 1, "p")
BEAT_S, STEP_S = 0.25, 0.02


def next_token(request: Request, output: tuple[int, ...]) -> int:
    """What the model of this world says: a function of seed, prompt and all output so far."""
    return hash((request.seed, request.prompt_token_ids, output)) % VOCABULARY


def whole_answer(request: Request) -> list[int]:
    """The answer of a replica that nothing happens to, end token included."""
    output: list[int] = []
    while len(output) < request.max_tokens:
        output.append(next_token(request, tuple(output)))
        if output[-1] in request.end_token_ids:
            break
    return output


class InventedModel:
    """An executor that answers by `next_token`."""

    def execute(self, plan: Plan) -> StepResult:
        sampled: dict[str, Any] = {}
        for sequence in plan.sequences:
            if sequence.samples:
                output = tuple(sequence.known_token_ids[len(sequence.request.prompt_token_ids) :])
                token = next_token(sequence.request, output)
                wanted = sequence.request.params.logprobs is not None
                logprob = TokenLogprob(token, -token / 7) if wanted else None
                sampled[sequence.request.request_id] = (SampledToken(token, logprob),)
        return StepResult(sampled)


class SameTime:
    """Every step takes as long as any other."""

    def usual_s(self, segments: Any) -> float:
        return STEP_S

    def observe(self, plan: Plan, measured_s: float, now: float) -> None:
        """Nothing to learn."""


@dataclass(eq=False)
class World:
    """events: what the front's session would hear, by request. rates: of cuts and deaths, a second."""

    seed: int
    replicas: int = 3
    cut_rate: float = 0.0
    death_rate: float = 0.0
    hang_rate: float = 0.0
    num_pages: int = 24
    now: float = 0.0
    events: dict[str, list[Event]] = field(default_factory=dict)
    deaths: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.fleet = ReplicaFleet(PAGE_TOKENS)
        self.cores: dict[str, ReplicaCore] = {}
        self.hung: set[str] = set()
        self.links: dict[str, int] = {}
        self._link_numbers = itertools.count(1)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last_delivery: dict[tuple[str, bool, int], float] = {}
        for index in range(self.replicas):
            self._begin(f"r{index}")

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Later."""
        heapq.heappush(self._agenda, (self.now + seconds, next(self._order), action))

    def run(self, until_s: float, done: Callable[[], bool]) -> None:
        """Until nothing is left to happen, `done`, or a time."""
        while self._agenda and not done() and self.now < until_s:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
            for name in self.fleet.tick(self.now):
                self._cut(name)
            self._flush()

    def submit(self, request: Request) -> None:
        """A request comes to the front."""
        self.events[request.request_id] = []
        self.fleet.add(request)
        self._flush()

    def hear(self, events: list[Event]) -> None:
        """What the session hears."""
        for event in events:
            self.events[event.request_id].append(event)

    def tokens_of(self, request_id: str) -> list[int]:
        """The answer as it was told."""
        told = [e.token_id for e in self.events[request_id] if isinstance(e, TokenEvent)]
        ends = [e.stopped_by for e in self.events[request_id] if isinstance(e, FinishedEvent)]
        return told + [token for token in ends if token is not None]

    def ends_of(self, request_id: str) -> list[FinishedEvent]:
        """It should be one."""
        return [e for e in self.events[request_id] if isinstance(e, FinishedEvent)]

    # Replicas and their connections.

    def _begin(self, name: str) -> None:
        cache = CacheManager(self.num_pages, PAGE_TOKENS)
        scheduler = Scheduler(cache, SchedulerLimits(max_step_tokens=16, max_sequences=4, watermark_pages=1))
        faults: list[BaseException] = []
        core = ReplicaCore(scheduler, InventedModel(), lambda: self.now, SameTime(), faults.append, lambda: None)  # type: ignore[arg-type]
        self.cores[name] = core
        self.hung.discard(name)
        self._connect(name)
        self._turn(name, core)
        self._beat(name, core)
        for rate, happens in (
            (self.death_rate, self._die),
            (self.cut_rate, self._cut_and_connect),
            (self.hang_rate, self._hang),
        ):
            if rate:
                self.at(self.dice.expovariate(rate), lambda happens=happens: happens(name, core))

    def _connect(self, name: str) -> None:
        link = self.links[name] = next(self._link_numbers)
        core = self.cores[name]
        core.open(link)

        def join() -> None:
            if self.links.get(name) == link:
                facts = ReplicaFacts(
                    name, str(id(core)), "m", ARITHMETIC, PAGE_TOKENS, 96, 96, VOCABULARY, 4, STEP_S / 16
                )
                self.hear(self.fleet.joined(facts, self.now))

        self.at(self.dice.uniform(0, 0.05), join)

    def _turn(self, name: str, core: ReplicaCore) -> None:
        if self.cores.get(name) is not core:
            return
        told = core.step() if core.has_work and name not in self.hung else None
        for link, frame in told or []:
            self._send(name, link, frame, to_front=True)
        self.at(STEP_S * self.dice.uniform(0.5, 2.0), lambda: self._turn(name, core))

    def _beat(self, name: str, core: ReplicaCore) -> None:
        if self.cores.get(name) is not core:
            return
        if name not in self.hung and name in self.links:
            self._send(name, self.links[name], Beat(core.load()), to_front=True)
        self.at(BEAT_S, lambda: self._beat(name, core))

    def _flush(self) -> None:
        while self.fleet.outbox:
            name, frame = self.fleet.outbox.popleft()
            if name in self.links:
                self._send(name, self.links[name], frame, to_front=False)

    def _send(self, name: str, link: int, frame: Frame, to_front: bool) -> None:
        """In order on one connection, whatever the delays; as bytes."""
        (read,) = FrameReader().feed(encode(frame))
        key = (name, to_front, link)
        due = max(self.now + self.dice.expovariate(1 / 0.01), self._last_delivery.get(key, 0.0) + 1e-6)
        self._last_delivery[key] = due
        self.at(due - self.now, lambda: self._deliver(name, link, read, to_front))

    def _deliver(self, name: str, link: int, frame: Frame, to_front: bool) -> None:
        if self.links.get(name) != link:
            return  # that connection is gone
        if to_front:
            self.hear(self.fleet.heard(name, frame, self.now))
            return
        core = self.cores[name]
        if isinstance(frame, Assignment):
            refused = core.work(link, frame, None)
            if refused is not None:
                self._send(name, link, refused, to_front=True)
        elif isinstance(frame, Cancel):
            core.cancel(link, frame.number)

    def _cut(self, name: str) -> None:
        """The connection is gone; the front knows at once."""
        link = self.links.pop(name, None)
        if link is None:
            return
        if name in self.cores:
            self.cores[name].close(link)
        self.fleet.lost(name, self.now)
        self.at(self.dice.uniform(0.1, 0.6), lambda: self._connect_again(name))

    def _connect_again(self, name: str) -> None:
        if name not in self.links and name in self.cores:
            self._connect(name)

    def _cut_and_connect(self, name: str, core: ReplicaCore) -> None:
        if self.cores.get(name) is core:
            self._cut(name)
            self.at(self.dice.expovariate(self.cut_rate), lambda: self._cut_and_connect(name, core))

    def _hang(self, name: str, core: ReplicaCore) -> None:
        """It says nothing any more; the front finds out by silence, and a keeper starts it anew."""
        if self.cores.get(name) is core:
            self.hung.add(name)
            self.at(5.0, lambda: self._die(name, core))

    def _die(self, name: str, core: ReplicaCore) -> None:
        if self.cores.get(name) is not core:
            return
        self.deaths += 1
        link = self.links.pop(name, None)
        del self.cores[name]
        if link is not None:
            self.fleet.lost(name, self.now)
        self.at(self.dice.uniform(0.2, 1.0), lambda: self._begin(name))


def request_of(dice: random.Random, name: str, now: float) -> Request:
    """Prompts begin alike, so that prefixes are shared; some want log probabilities, some end early."""
    prompt = tuple(range(8)) + tuple(dice.randrange(VOCABULARY) for _ in range(dice.randrange(1, 20)))
    params = SamplingParams(temperature=1.0, logprobs=dice.choice([None, 0]))
    ends = frozenset({dice.randrange(VOCABULARY)}) if dice.random() < 0.7 else frozenset()
    return Request(name, name, prompt, params, dice.randrange(1 << 40), dice.randrange(1, 30), ends, now)


__all__ = ["FinishReason", "World", "request_of", "whole_answer"]
