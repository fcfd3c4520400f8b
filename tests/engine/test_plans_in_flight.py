"""Several plans in flight: their order, requests that end meanwhile, interruptions, and the account of time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pure.test_schedules import Inventor
from twostroke.cost.history.ledger import Ledger
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore, Step
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.lab.sim.clock import VirtualClock
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult
from twostroke.types.sampling.sampling_params import SamplingParams


class Stages(Inventor):
    """Records what is begun and executed. fault: raised instead of the next result."""

    def __init__(self, limits: SchedulerLimits, clock: VirtualClock) -> None:
        super().__init__(limits)
        self.notes: list[str] = []
        self.clock = clock
        self.fault: BaseException | None = None

    def begin(self, plan: Plan) -> None:
        self.notes.append(f"begin {plan.step_id}")
        super().begin(plan)

    def execute(self, plan: Plan) -> StepResult:
        self.notes.append(f"execute {plan.step_id}")
        self.clock.advance(1.0)
        fault, self.fault = self.fault, None
        if fault is not None:
            self.begun.popleft()
            raise fault
        return replace(super().execute(plan), model_s=1.0)


class Engine:
    """A core with room for two plans, and the tokens of each request."""

    def __init__(self, pages: int = 40, step_tokens: int = 8) -> None:
        limits = SchedulerLimits(step_tokens, 8, 0, plans_in_flight=2)
        self.clock, self.ledger = VirtualClock(), Ledger()
        self.stages = Stages(limits, self.clock)
        self.cache = CacheManager(pages, 4)
        self.scheduler = Scheduler(self.cache, limits)
        flight = PlansInFlight(2, self.stages.begin)
        flight.tell(self.ledger)
        self.core = EngineCore(self.scheduler, self.stages, self.ledger.step, flight)
        self.tokens: dict[str, list[int]] = {}
        self.ended: dict[str, FinishReason] = {}

    def add(self, name: str, prompt: int, output: int, seed: int = 0) -> None:
        asked = Request(
            name, name, tuple(range(prompt)), SamplingParams(), seed, output, frozenset(), self.clock(), cache_salt=name
        )
        self.scheduler.add(asked)
        self.ledger.arrive(asked)
        self.tokens[name] = []

    def step(self) -> Step | None:
        step = self.core.step(self.clock)
        for event in step.events if step else ():
            if isinstance(event, TokenEvent):
                self.tokens[event.request_id].append(event.token_id)
            elif isinstance(event, FinishedEvent):
                self.ended[event.request_id] = event.reason
                self.ledger.finish(event)
        self.ledger.close_step(self.clock())
        return step

    def run(self) -> None:
        while self.core.has_work:
            self.step()
        assert self.cache.pages_used == 0


def solo(prompt: int, output: int, seed: int = 0) -> list[int]:
    engine = Engine()
    engine.add("solo", prompt, output, seed)
    engine.run()
    return engine.tokens["solo"]


def test_the_next_plan_is_begun_before_a_result_is_asked_for() -> None:
    engine = Engine()
    engine.add("a", 5, 3)
    engine.add("b", 5, 3)  # its last positions are in the second plan
    for _ in range(3):
        engine.step()
    assert engine.stages.notes == ["begin 1", "begin 2", "execute 1", "begin 3", "execute 2", "begin 4", "execute 3"]
    engine.run()
    assert engine.tokens == {"a": solo(5, 3), "b": solo(5, 3)}


def test_chunks_of_one_prompt_are_in_flight_together() -> None:
    engine = Engine()
    engine.add("a", 30, 2)
    engine.step()
    assert engine.stages.notes == ["begin 1", "begin 2", "execute 1"]
    engine.run()
    assert engine.tokens["a"] == solo(30, 2)


def test_what_was_in_flight_for_a_request_that_ended_is_not_given_to_the_next_one_of_its_name() -> None:
    engine = Engine()
    engine.add("a", 20, 4)
    engine.step()  # its second chunk is in flight
    (ended,) = engine.scheduler.abort("a", engine.clock())
    assert isinstance(ended, FinishedEvent) and engine.cache.pages_used == 0
    engine.ledger.finish(ended)
    engine.add("a", 9, 4, seed=5)
    engine.run()
    assert engine.tokens["a"] == solo(9, 4, seed=5)


def test_plans_in_flight_for_nobody_are_executed_before_the_engine_rests() -> None:
    engine = Engine()
    engine.add("a", 20, 4)
    engine.step()
    engine.scheduler.abort("a", engine.clock())
    assert not engine.scheduler.has_work and engine.core.has_work
    engine.run()
    assert engine.stages.notes[-1] == "execute 2" and engine.core.step(engine.clock) is None


def test_an_interrupted_plan_fails_alone() -> None:
    engine = Engine()
    engine.add("a", 5, 9)
    engine.add("b", 5, 9)
    engine.step()  # the next plan, which is for b, is in flight
    engine.stages.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    interrupted = engine.core.interrupted
    assert interrupted is not None
    (event,) = interrupted.events
    assert isinstance(event, FinishedEvent) and (event.request_id, event.reason) == ("b", FinishReason.ERROR)
    engine.run()
    assert engine.tokens["a"] == solo(5, 9)


def test_seconds_in_which_the_first_stages_have_a_plan_are_no_waiting() -> None:
    engine = Engine(step_tokens=40)
    for name in "abcd":
        engine.add(name, 5, 20)
    engine.run()
    for name in "abcd":
        (account,) = engine.ledger.accounts.find(name)
        parts = account.parts
        assert parts.total_s == pytest.approx(account.finished_s - account.arrival_s)
        assert parts.own_prefill_s + parts.decode_s > 0.9 * parts.total_s, parts
