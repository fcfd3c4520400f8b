"""A front and replicas in one process under a virtual clock. Frames are delayed, connections are cut, and replicas
die."""

from __future__ import annotations

import heapq
import itertools
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.fleet.invented import PAGE_TOKENS, VOCABULARY, PagedModel
from tests.scheduler.fakes import LineCost
from twostroke.cost.explain.advice import Options
from twostroke.cost.explain.explanation import Explanation
from twostroke.cost.explain.verdict import Explainer
from twostroke.cost.history.ledger import Ledger
from twostroke.distributed.cluster.framing import FrameReader, encode
from twostroke.distributed.cluster.records import RecordCalls
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.fleet.moving import Sooner
from twostroke.distributed.fleet.router import LeastSeconds
from twostroke.distributed.replica.core import ReplicaCore
from twostroke.distributed.replica.page_exchange import PageExchange, hash_of
from twostroke.distributed.replica.streams import LoopStreams
from twostroke.distributed.wire.frames import (
    Arithmetic,
    Assignment,
    Beat,
    Cancel,
    Frame,
    PagesAhead,
    PagesAsked,
    PageSource,
    PagesSent,
    RecordAsked,
    RecordSent,
    ReplicaFacts,
    ReplicaRole,
    WirePage,
)
from twostroke.engine.beams.book import BeamBook
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.engine.scheduler.policy import ArrivalPolicy, Policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.step_loop import StepLoop
from twostroke.types.event import Event, FinishedEvent, TokenEvent
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams

ARITHMETIC = Arithmetic(1, "int8", "int8", "none", "whole", "t", 1, "p")
BEAT_S, STEP_S = 0.25, 0.02


class SameTime:
    """A StepCost with the same time for every step."""

    def usual_s(self, segments: Any) -> float:
        return STEP_S

    def observe(self, plan: Plan, measured_s: float, now: float) -> None:
        """Learns nothing."""


@dataclass(eq=False)
class World:
    """events: the events that the front's session would receive, by request. ended: the number of these events that end
    a request. rates: cuts and deaths in a second.
    roles: the roles of the replicas, in turn. lost_pages, flipped_pages: the shares of answers whose pages
    are lost or damaged. pages_ahead: the pages of pages_kept that came while no request waited for them. sooner,
    router: see ReplicaFleet. objectives: the objectives that replicas promise; their steps are predicted to take
    STEP_S."""

    seed: int
    replicas: int = 3
    cut_rate: float = 0.0
    death_rate: float = 0.0
    hang_rate: float = 0.0
    num_pages: int = 24
    roles: tuple[ReplicaRole, ...] = ("both",)
    lost_pages: float = 0.0
    flipped_pages: float = 0.0
    now: float = 0.0
    events: dict[str, list[Event]] = field(default_factory=dict)
    deaths: int = 0
    ended: int = 0
    pages_kept: int = 0
    pages_ahead: int = 0
    sooner: Sooner = operator.lt
    objectives: LatencyObjectives = NO_OBJECTIVES
    router: LeastSeconds | None = None

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.fleet = ReplicaFleet(PAGE_TOKENS, self.router, self.sooner)
        self.records = RecordCalls(lambda: None, answer_s=0.0)
        self._page_asks: dict[tuple[int, int], int] = {}
        self._page_links: dict[tuple[int, int], tuple[int, str, ReplicaCore]] = {}
        self.cores: dict[str, ReplicaCore] = {}
        self._every: list[ReplicaCore] = []  # kept, so that no later start of a replica has the id of an earlier one
        self.hung: set[str] = set()
        self.links: dict[str, int] = {}
        self._link_numbers = itertools.count(1)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last_delivery: dict[tuple[str, bool, int], float] = {}
        for index in range(self.replicas):
            self._begin(f"r{index}")

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls the action later."""
        heapq.heappush(self._agenda, (self.now + seconds, next(self._order), action))

    def run(self, until_s: float, done: Callable[[], bool]) -> None:
        """Runs until no event is left, until `done`, or until a time."""
        while self._agenda and not done() and self.now < until_s:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
            for name in self.fleet.tick(self.now):
                self._cut(name)
            self._flush()

    def submit(self, request: Request) -> None:
        """Sends a request to the front."""
        self.events[request.request_id] = []
        self.fleet.add(request)
        self._flush()

    def hear(self, events: list[Event]) -> None:
        """Takes what the session gets."""
        for event in events:
            self.events[event.request_id].append(event)
            if isinstance(event, FinishedEvent):
                self.ended += 1
                self.fleet.ledger.finish(event)

    def explain(self, request_id: str) -> list[Explanation]:
        """The explanation that a client of the front gets after replicas had two seconds to answer."""
        asked = self.records.ask(self.fleet, request_id)
        self.records.send(self.fleet)
        self._flush()
        self.run(self.now + 2.0, lambda: False)
        return self.records.told(asked)

    def tokens_of(self, request_id: str) -> list[int]:
        """The answer as it was sent."""
        told = [e.token_id for e in self.events[request_id] if isinstance(e, TokenEvent)]
        ends = [e.stopped_by for e in self.events[request_id] if isinstance(e, FinishedEvent)]
        return told + [token for token in ends if token is not None]

    def ends_of(self, request_id: str) -> list[FinishedEvent]:
        """The number of ends, which should be one."""
        return [e for e in self.events[request_id] if isinstance(e, FinishedEvent)]

    # Replicas and their connections.

    def _begin(self, name: str) -> None:
        cache, model = CacheManager(self.num_pages, PAGE_TOKENS), PagedModel()
        limits = SchedulerLimits(max_step_tokens=16, max_sequences=4, watermark_pages=1)
        book = BeamBook(Scheduler(cache, limits, self._policy(limits)), lambda request: None)
        faults: list[BaseException] = []
        pages = PageExchange(cache, model)
        loop = StepLoop(book, model, lambda: self.now, faults.append, lambda: None)
        core = ReplicaCore(LoopStreams(loop, SameTime(), explainer()), pages)  # type: ignore[arg-type]
        self.cores[name] = core
        self._every.append(core)
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

    def _policy(self, limits: SchedulerLimits) -> Policy:
        cost = LineCost(STEP_S, 0.0, 0.0)
        return objective_policy(cost, self.objectives, limits, PAGE_TOKENS) if self.objectives.any else ArrivalPolicy()

    def _connect(self, name: str) -> None:
        link = self.links[name] = next(self._link_numbers)
        core = self.cores[name]
        core.open(link)

        def join() -> None:
            if self.links.get(name) == link:
                role = self.roles[int(name[1:]) % len(self.roles)]
                facts = facts_of(name, instance_of(core), role)
                self.hear(self.fleet.joined(facts, self.now, (name, 1)))

        self.at(self.dice.uniform(0, 0.05), join)

    def _turn(self, name: str, core: ReplicaCore) -> None:
        if self.cores.get(name) is not core:
            return
        if name not in self.hung:
            if core.has_work and core.step() is None:
                core.let_go()
            core.feeds.answer(self.now, set())
        self._empty(name, core)
        self.at(STEP_S * self.dice.uniform(0.5, 2.0), lambda: self._turn(name, core))

    def _empty(self, name: str, core: ReplicaCore) -> None:
        """Sends a replica's messages. Each question for pages and each answer takes its time. By then, another replica
        may have taken the place of either one."""
        while core.outbox:
            link, frame = core.outbox.popleft()
            if isinstance(frame, PagesSent):
                self._send_pages(core, link, frame)
            else:
                self._send(name, link, frame, to_front=True)
        while core.pulls.asks:
            source, asked = core.pulls.asks.popleft()
            number = self._page_asks[id(core), asked.number] = next(self._link_numbers)
            self.at(self.dice.expovariate(1 / 0.02), partial(self._take_question, name, core, source, asked))
            self.at(2.0, partial(self._pages_came, name, core, asked.number, None, number))

    def _take_question(self, name: str, core: ReplicaCore, source: PageSource, asked: PagesAsked) -> None:
        there = self.cores.get(source.host)
        if there is None or instance_of(there) != source.instance or self.dice.random() < self.lost_pages:
            number = self._page_asks.get((id(core), asked.number), 0)
            self.at(0.3, partial(self._pages_came, name, core, asked.number, None, number))
            return
        link = self._page_links.setdefault((id(core), id(there)), (next(self._link_numbers), name, core))[0]
        there.feeds.ask(link, asked, self.now)
        self._empty(source.host, there)

    def _send_pages(self, core: ReplicaCore, link: int, sent: PagesSent) -> None:
        found = next(each for key, each in self._page_links.items() if each[0] == link and key[1] == id(core))
        if sent.pages and self.dice.random() < self.flipped_pages:
            at = self.dice.randrange(len(sent.pages))
            damaged = bytes([sent.pages[at].data[0] ^ 1]) + sent.pages[at].data[1:]
            pages = (*sent.pages[:at], WirePage(damaged, sent.pages[at].digest), *sent.pages[at + 1 :])
            sent = PagesSent(sent.number, pages)
        number = self._page_asks.get((id(found[2]), sent.number), 0)
        self.at(self.dice.expovariate(1 / 0.02), partial(self._pages_came, *found[1:], sent.number, sent, number))

    def _pages_came(self, name: str, core: ReplicaCore, number: int, sent: PagesSent | None, asked: int) -> None:
        """asked: the question that this answers. A question that has its answer already gets no other."""
        if self.cores.get(name) is not core or self._page_asks.get((id(core), number)) != asked:
            return
        del self._page_asks[id(core), number]
        self.pages_kept += 0 if sent is None else len(sent.pages)
        self.pages_ahead += 0 if sent is None or len(core.pulls) else len(sent.pages)
        core.pages_came(number, sent, [hash_of(page.data) for page in sent.pages] if sent else ())
        self._empty(name, core)

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
        """Sends bytes in order on one connection, whatever the delays."""
        (read,) = FrameReader().feed(encode(frame))
        key = (name, to_front, link)
        due = max(self.now + self.dice.expovariate(1 / 0.01), self._last_delivery.get(key, 0.0) + 1e-6)
        self._last_delivery[key] = due
        self.at(due - self.now, lambda: self._deliver(name, link, read, to_front))

    def _deliver(self, name: str, link: int, frame: Frame, to_front: bool) -> None:
        if self.links.get(name) != link:
            return  # that connection is gone
        if isinstance(frame, RecordSent):
            self.records.came(name, frame)
            return
        if to_front:
            self.hear(self.fleet.heard(name, frame, self.now))
            return
        core = self.cores[name]
        if isinstance(frame, Assignment):
            core.work(link, frame)
        elif isinstance(frame, Cancel):
            core.cancel(link, frame.number)
        elif isinstance(frame, PagesAhead):
            core.pulls.ahead(link, frame)
        elif isinstance(frame, RecordAsked):
            core.record(link, frame)
        self._empty(name, core)

    def _cut(self, name: str) -> None:
        """Cuts the connection. The front knows it at once."""
        link = self.links.pop(name, None)
        if link is None:
            return
        if name in self.cores:
            self.cores[name].close(link)
        self.records.lost(name)
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
        """Makes the replica silent. The front finds out by the silence, and a keeper starts the replica anew."""
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
            self.records.lost(name)
            self.fleet.lost(name, self.now)
        self.at(self.dice.uniform(0.2, 1.0), lambda: self._begin(name))


def explainer() -> Explainer:
    """A replica's explainer, which does not know the machine's costs."""
    return Explainer(Ledger(), None, Options(16, 4))


def facts_of(name: str, instance: str, role: ReplicaRole) -> ReplicaFacts:
    """The facts that a replica of this world reports."""
    sizes = (PAGE_TOKENS, 96, 96, VOCABULARY, 4, STEP_S / 16)
    return ReplicaFacts(name, instance, "m", ARITHMETIC, *sizes, role, PagedModel.page_bytes)


def instance_of(core: ReplicaCore) -> str:
    """A name for one start of a replica, which differs from the names of its other starts."""
    return str(id(core))


def request_of(dice: random.Random, name: str, now: float) -> Request:
    """A request. Prompts have common beginnings, so that prefixes are shared; some ask for log probabilities, some end
    early."""
    prompt = tuple(range(8)) + tuple(dice.randrange(VOCABULARY) for _ in range(dice.randrange(1, 20)))
    params = SamplingParams(temperature=1.0, logprobs=dice.choice([None, 0]))
    ends = frozenset({dice.randrange(VOCABULARY)}) if dice.random() < 0.7 else frozenset()
    return Request(name, name, prompt, params, dice.randrange(1 << 40), dice.randrange(1, 30), ends, now)


def beams_of(dice: random.Random, name: str, now: float) -> list[Request]:
    """The members of a beam search."""
    params = SamplingParams(n=dice.choice([2, 3]), use_beam_search=True, logprobs=0)
    first = replace(request_of(dice, name, now), params=params)
    return [replace(first, request_id=f"{name}/{index}") for index in range(params.n)]
