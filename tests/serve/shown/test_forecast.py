"""Retry-After compared with what the production core then does, under a virtual clock."""

from __future__ import annotations

import random

import pytest

from tests.faults.world import RowCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.scheduler.estimates.cost_correction import CostCorrection
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.predicted import PredictedExecutor
from twostroke.server.gate.forecast import Forecast, Room
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.output import Timings
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams


class Run:
    """A scheduler whose steps a Forecast observes. `slow`: how much longer steps take than the cost model predicts."""

    def __init__(self, sequences: int, step_tokens: int, pages: int = 10_000, slow: float = 1.0) -> None:
        self.clock = VirtualClock()
        self.slow = slow
        self.scheduler = Scheduler(CacheManager(pages, 16), SchedulerLimits(step_tokens, sequences))
        self.core = EngineCore(self.scheduler, PredictedExecutor(RowCost(), self.clock))
        self.forecast = Forecast(StepTime(RowCost(), CostCorrection()), Room(sequences, step_tokens))
        self.waiting: dict[str, int] = {}
        self.added = 0

    def add(self, prompt_tokens: int, output_tokens: int) -> None:
        self.added += 1
        name = f"r{self.added}"
        dice = random.Random(self.added)
        prompt = tuple(dice.randrange(1000) for _ in range(prompt_tokens))
        params = SamplingParams(max_tokens=output_tokens)
        self.waiting[name] = prompt_tokens
        self.scheduler.add(Request(name, name, prompt, params, 1, output_tokens, frozenset(), self.clock(), "", 0))

    def step(self) -> None:
        started_s = self.clock()
        step = self.core.step(self.clock)
        assert step is not None
        self.clock.advance((self.clock() - started_s) * (self.slow - 1))
        self.forecast.on_step(step.plan, step.result, self.clock() - started_s)
        for event in step.events:
            if isinstance(event, TokenEvent):
                self.waiting.pop(event.request_id, None)
            if isinstance(event, FinishedEvent):
                self.forecast.on_finish(event, Timings(0.0, None, None, event.at_s, None))

    def drained_s(self, requests: int, tokens: int) -> float:
        """How long it really takes until this part of the queue is answered."""
        started_s = self.clock()
        left, tokens_left = len(self.waiting) - requests, sum(self.waiting.values()) - tokens
        while len(self.waiting) > left or sum(self.waiting.values()) > tokens_left:
            self.step()
        return self.clock() - started_s


@pytest.mark.parametrize("slow", [1.0, 2.5], ids=["as predicted", "slower"])
@pytest.mark.parametrize(
    ("prompt", "output", "sequences", "requests"), [(400, 8, 64, 20), (64, 100, 16, 12), (200, 200, 8, 30)]
)
def test_the_forecast_is_close_to_what_happens(
    prompt: int, output: int, sequences: int, requests: int, slow: float
) -> None:
    run = Run(sequences, 512, slow=slow)
    dice = random.Random(1)

    def any_output() -> int:
        return dice.randint(max(1, output // 2), output + output // 2)

    for _ in range(8 * sequences):
        run.add(prompt, any_output())
    for _ in range(4 * output):  # the forecast has seen answers, and streams are at all of their places
        run.step()
        while len(run.waiting) < 2 * requests:
            run.add(prompt, any_output())
    gauges = run.scheduler.gauges()
    told_s = run.forecast.wait_s(requests, requests * prompt, places_free=not gauges.waiting)
    real_s = run.drained_s(requests, requests * prompt)
    assert 0.6 * real_s < told_s < 1.6 * real_s


def test_nothing_to_wait_for_takes_no_time() -> None:
    run = Run(8, 512)
    assert run.forecast.wait_s(0, 0) == 0.0
    assert run.forecast.wait_s(1, 0) == 0.0
    assert run.forecast.wait_s(1, 512) == pytest.approx(0.512)
    run.add(100, 50)
    run.step()
    assert run.forecast.wait_s(1, 0) == 0.0, "places are free"
    assert run.forecast.wait_s(1, 0, places_free=False) > 0.0
