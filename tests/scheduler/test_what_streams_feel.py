"""The time of a step that the policy gets is the time that the running streams wait."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.scheduler.fakes import LineCost, World, request
from twostroke.cost.shape import Part
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.policy import ArrivalPolicy


class NotingPolicy(ArrivalPolicy):
    """A first-come, first-served policy that records the measured times."""

    def __init__(self) -> None:
        super().__init__()
        self.measured_s: list[float] = []

    def observe(self, parts: Iterable[Part], measured_s: float, now: float, disturbed: bool = False) -> None:
        self.measured_s.append(measured_s)


def test_the_drivers_time_between_steps_counts_while_streams_run() -> None:
    policy, cost = NotingPolicy(), LineCost()
    world = World(policy, SchedulerLimits(64, 4), cost)
    world.add(request(1, 8, 3))
    for pause_s in (5.0, 0.004, 0.002):  # before the first step no request streams
        world.now_s += pause_s
        assert world.step() is not None
    decode_s = cost.step_s + cost.row_s + cost.stream_s
    assert policy.measured_s[0] == pytest.approx(cost.step_s + 8 * cost.row_s + cost.stream_s)
    assert policy.measured_s[1:] == pytest.approx([decode_s + 0.004, decode_s + 0.002])
    world.now_s += 60.0  # all have ended, so the pause counts for no stream
    world.add(request(2, 8, 1, arrival_s=world.now_s))
    assert world.step() is not None
    assert policy.measured_s[3] == pytest.approx(policy.measured_s[0])


def test_a_pause_after_the_last_stream_was_aborted_counts_for_no_stream() -> None:
    policy = NotingPolicy()
    world = World(policy, SchedulerLimits(64, 4), LineCost())
    world.add(request(1, 8, 30))
    assert world.step() is not None
    world.scheduler.abort("1", world.now_s)
    world.now_s += 60.0
    world.add(request(2, 8, 1, arrival_s=world.now_s))
    assert world.step() is not None
    assert policy.measured_s[1] == pytest.approx(policy.measured_s[0])
