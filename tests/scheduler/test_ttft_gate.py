"""Early refusal: who would be late is told so, and the time to come again is true to the cost model."""

from __future__ import annotations

import pytest

from tests.scheduler.fakes import LineCost, World, promised, request
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.scheduler.ttft_gate import REFUSAL_FACTOR
from twostroke.types.errors import Overloaded, TwostrokeError


def crowded(count: int = 60, prompt: int = 400, output: int = 1, itl_s: float | None = None) -> World:
    """Each prompt takes 50 ms; the objective is one second."""
    world = promised(ttft_s=1.0, itl_s=itl_s, limits=SchedulerLimits(512, 64), pages=40_000)
    for number in range(count):
        world.add(request(number, prompt, output))
    return world


def test_a_crowd_is_let_in_as_far_as_it_can_be_served_in_time() -> None:
    world = crowded()
    accepted = [name for name in world.tokens if name not in world.refused]
    assert 15 <= len(accepted) <= 40 and len(world.refused) == 60 - len(accepted)
    world.run()
    assert all(world.tokens[name][0][1] <= REFUSAL_FACTOR * 1.0 for name in accepted)


@pytest.mark.parametrize("itl_s", [None, 0.05])
def test_who_comes_again_when_told_to_is_in_time(itl_s: float | None) -> None:
    world = crowded(itl_s=itl_s)
    retry_after_s = world.refused["59"]
    assert 0 < retry_after_s < 5
    until_s = world.now_s + retry_after_s
    while world.now_s < until_s and world.step() is not None:
        pass
    again = request(99, 400, 4, arrival_s=max(world.now_s, until_s))
    world.now_s = again.arrival_s
    assert world.add(again)
    world.run()
    assert world.ttft_s(again) <= 1.0


def test_who_comes_again_at_once_is_refused_again_and_the_error_says_why() -> None:
    world = crowded()
    with pytest.raises(Overloaded) as caught:
        world.scheduler.add(request(99, 400, 4))
    error = caught.value
    assert isinstance(error, TwostrokeError) and error.retry_after_s > 0
    assert "1 s is the objective" in error.why and "Try again in" in error.fix
    gauges = world.scheduler.gauges()
    assert gauges.waiting + gauges.running == 60 - len(world.refused), "a refused request leaves nothing behind"


def test_the_time_until_a_place_gets_free_counts() -> None:
    world = promised(ttft_s=1.0, itl_s=None, limits=SchedulerLimits(512, 2))
    for number in range(2):
        world.add(request(number, 20, 300))
    for _ in range(3):
        world.step()
    assert not world.add(request(10, 20, 5, world.now_s)), "both places are taken for three seconds"
    assert 1.0 < world.refused["10"] < 4.0


def test_length_alone_is_no_reason_and_neither_is_batch_work() -> None:
    world = promised(ttft_s=0.1, itl_s=None)
    assert world.add(request(1, 3000, 2)), "alone it takes three times the objective"
    assert world.add(request(2, 3000, 2, priority=1))
    assert world.add(request(3, 100, 2)), "it comes before one that is late already"
    world.run()
    assert len(world.ended) == 3


def test_siblings_of_who_was_let_in_are_let_in() -> None:
    world = crowded(count=0)
    for number in range(40):
        assert world.add(request(number, 400, 2, group="n=40"))


def test_a_wrong_model_is_corrected_before_the_gate_believes_it() -> None:
    """The model says a tenth of the truth; after a while refusals are what they would be with the truth."""
    world = promised(ttft_s=1.0, itl_s=None, cost=LineCost(0.001, 0.00001, 0.00005), truth=LineCost(), pages=40_000)
    for number in range(12):
        world.add(request(number, 400, 3, world.now_s))
        world.run()
    for number in range(100, 160):
        world.add(request(number, 400, 1, world.now_s))
    assert 20 <= len(world.refused) <= 45
