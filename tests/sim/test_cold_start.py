"""Objectives from the first second on: slow first steps refuse no request that could have been in time.

A small closed loop runs under the virtual clock. The machine is four times as slow while memory is made ready, and a
request is answered before the users come, as in `bench serve`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from tests.scheduler.fakes import PAGE, LineCost, World, request
from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.types.objectives import LatencyObjectives

PROMISED = LatencyObjectives(4.0, 0.3)
USERS, QUESTIONS = 8, 24
TRUE = LineCost(step_s=0.020, row_s=0.003, stream_s=0.002)
"""Roughly a 1B model on two cores."""


@dataclass
class ColdLine(LineCost):
    """The first steps take four times as long."""

    cold_calls: int = 0

    def seconds(self, segments: Sequence[Segment]) -> float:
        return super().seconds(segments) * (4.0 if self.cold_calls > 0 else 1.0)


class ColdWorld(World):
    """A world that tells which steps were cold, as the engine does."""

    def step(self):  # type: ignore[no-untyped-def]
        cold = self.truth.cold_calls > 0
        commit = self.scheduler.commit
        self.scheduler.commit = lambda plan, result, now: commit(plan, replace(result, cold=cold), now)
        try:
            return super().step()
        finally:
            self.scheduler.commit = commit
            self.truth.cold_calls -= 1


def closed_loop(cold_steps: int, model: LineCost, guessed: bool, budget: int = 0) -> tuple[float, float]:
    """The share of all questions that were good, and the share of the answered ones that kept both promises."""
    limits = SchedulerLimits(budget or 2048, USERS)
    policy = None if budget else objective_policy(model, PROMISED, limits, PAGE, guessed=guessed)
    truth = ColdLine(TRUE.step_s, TRUE.row_s, TRUE.stream_s, cold_calls=cold_steps)
    world = ColdWorld(policy, limits, truth, 100_000)
    world.run([request(999, 384, 32)])
    sizes = itertools.cycle([(300, 40), (500, 90), (384, 64), (250, 70), (620, 50)])
    asked = []
    users = [(world.now_s, number) for number in range(USERS)]
    busy: dict[str, int] = {}
    while users or world.scheduler.has_work:
        if not world.scheduler.has_work:
            world.now_s = max(world.now_s, users[0][0])
        while users and users[0][0] <= world.now_s:
            _, user = heapq.heappop(users)
            if len(asked) < QUESTIONS:
                each = request(len(asked), *next(sizes), arrival_s=world.now_s)
                asked.append(each)
                busy[each.request_id] = user
                world.add(each)
        if world.scheduler.has_work:
            world.step()
        for name in [name for name in busy if name in world.ended or name in world.refused]:
            heapq.heappush(users, (world.now_s, busy.pop(name)))  # a refused user asks the next question at once
    kept = [good(world, each) for each in asked if each.request_id not in world.refused]
    return sum(kept) / len(asked), sum(kept) / max(1, len(kept))


def good(world: World, asked) -> bool:  # type: ignore[no-untyped-def]
    times = [at_s for _, at_s in world.tokens[asked.request_id]]
    gaps = sorted(b - a for a, b in itertools.pairwise(times))
    return times[0] - asked.arrival_s <= 4.0 and gaps[int(0.95 * len(gaps))] <= 0.3


@pytest.mark.parametrize("cold_steps", [0, 20], ids=["warm", "cold"])
def test_goodput_is_that_of_the_best_fixed_size_and_promises_are_kept(cold_steps: int) -> None:
    best = max(closed_loop(cold_steps, TRUE, False, budget)[0] for budget in (32, 64, 96, 128, 512))
    share, kept = closed_loop(cold_steps, TRUE, guessed=False)
    assert share >= 0.95 * best
    assert kept >= 0.9


@pytest.mark.parametrize("factor", [0.5, 2.5])
@pytest.mark.parametrize("cold_steps", [0, 20], ids=["warm", "cold"])
def test_a_wrong_guess_does_not_spiral(cold_steps: int, factor: float) -> None:
    """Without a measurement, most requests are still served in time. Before, nearly all were refused."""
    best = max(closed_loop(cold_steps, TRUE, False, budget)[0] for budget in (32, 64, 96, 128, 512))
    guess = LineCost(TRUE.step_s * factor, TRUE.row_s * factor, TRUE.stream_s * factor)
    share, _ = closed_loop(cold_steps, guess, guessed=True)
    assert share >= 0.8 * best
