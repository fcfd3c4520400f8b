"""Early refusal: a request that would be late is refused, and its Retry-After agrees with the cost model."""

from __future__ import annotations

import pytest

from tests.scheduler.fakes import LineCost, World, promised, request
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.errors import Overloaded, TwostrokeError


def crowded(count: int = 60, prompt: int = 400, output: int = 1, itl_s: float | None = None) -> World:
    """Each prompt takes 50 ms; the objective is one second."""
    world = promised(ttft_s=1.0, itl_s=itl_s, limits=SchedulerLimits(512, 64), pages=40_000)
    for number in range(count):
        world.add(request(number, prompt, output))
    return world


def test_a_crowd_is_promised_as_far_as_it_can_be_served_in_time_and_the_rest_is_refused_before_it_is_late() -> None:
    world = crowded().run()
    served = [name for name, tokens in world.tokens.items() if tokens]
    assert 15 <= len(served) <= 20 and len(world.refused) == 60 - len(served)
    assert all(world.tokens[name][0][1] <= 1.0 for name in served), "what was promised is kept"
    assert served == [str(number) for number in range(len(served))], "the request that came first keeps its place"
    held = [world.refused_at_s[name] for name in world.refused if world.refused_at_s[name] > 0]
    assert held and max(held) < 1.1, "the others hear of it when it is certain, and not later"


@pytest.mark.parametrize("itl_s", [None, 0.05])
def test_a_request_that_comes_again_after_retry_after_is_in_time(itl_s: float | None) -> None:
    world = crowded(itl_s=itl_s).run()
    last = max(world.refused, key=lambda name: world.refused_at_s[name])
    until_s = world.refused_at_s[last] + world.refused[last]
    again = request(99, 400, 4, arrival_s=max(world.now_s, until_s))
    world.now_s = again.arrival_s
    assert world.add(again)
    world.run()
    assert world.ttft_s(again) <= 1.0


def test_what_is_hopeless_is_refused_at_once_and_the_error_says_why() -> None:
    world = crowded(count=90)
    with pytest.raises(Overloaded) as caught:
        world.scheduler.add(request(99, 400, 4))
    error = caught.value
    assert isinstance(error, TwostrokeError) and error.retry_after_s > 0
    assert "1 s is the objective" in error.why and "Try again in" in error.fix
    gauges = world.scheduler.gauges()
    assert gauges.waiting + gauges.running == 90 - len(world.refused), "a refused request leaves nothing behind"


def test_a_held_request_is_promised_when_steps_turn_out_to_be_fast() -> None:
    """The model predicts three times the truth, and no request is refused for that."""
    slow = LineCost(0.03, 0.0003, 0.0015)
    world = promised(ttft_s=1.0, itl_s=None, cost=slow, truth=LineCost(), limits=SchedulerLimits(512, 64), pages=40_000)
    for number in range(15):
        world.add(request(number, 400, 1))
    world.run()
    assert not world.refused
    assert all(world.ttft_s(request(number, 400, 1)) <= 1.0 for number in range(15))


def test_no_request_is_refused_where_nothing_waits_or_runs() -> None:
    """This holds however slow the last steps were."""
    world = promised(ttft_s=0.2, itl_s=None, truth=LineCost(step_s=0.15, row_s=0.001))
    for number in range(5):
        assert world.add(request(number, 400, 2, arrival_s=world.now_s))
        world.run()
        assert world.tokens[str(number)]


def test_the_time_until_a_place_gets_free_counts() -> None:
    world = promised(ttft_s=1.0, itl_s=None, limits=SchedulerLimits(512, 2))
    for number in range(2):
        world.add(request(number, 20, 300))
    for _ in range(3):
        world.step()
    world.add(request(10, 20, 5, world.now_s))
    world.run()
    assert 1.0 < world.refused["10"] < 4.0, "both places are taken for three seconds"


def test_length_alone_is_no_reason_and_neither_is_batch_work() -> None:
    world = promised(ttft_s=0.1, itl_s=None)
    assert world.add(request(1, 3000, 2)), "alone it takes three times the objective"
    assert world.add(request(2, 3000, 2, priority=1))
    assert world.add(request(3, 100, 2)), "it comes before one that is late already"
    world.run()
    assert len(world.ended) == 3


def test_siblings_share_the_fate_of_the_first() -> None:
    world = crowded(count=30)
    for number in range(40, 44):
        assert world.add(request(number, 400, 2, group="n=4"))
    world.run()
    assert {str(number) in world.refused for number in range(40, 44)} == {True}
    alone = crowded(count=0)
    for number in range(40):
        assert alone.add(request(number, 400, 2, group="n=40"))
    assert len(alone.run().ended) == 40 and not alone.refused


def test_a_wrong_model_is_corrected_before_the_gate_believes_it() -> None:
    """The model predicts a tenth of the truth. After a while, refusals are those that the truth would give."""
    world = promised(ttft_s=1.0, itl_s=None, cost=LineCost(0.001, 0.00001, 0.00005), truth=LineCost(), pages=40_000)
    for number in range(12):
        world.add(request(number, 400, 3, world.now_s))
        world.run()
    for number in range(100, 160):
        world.add(request(number, 400, 1, world.now_s))
    world.run()
    assert 40 <= len(world.refused) <= 48


def test_where_only_held_requests_are_left_the_first_begins() -> None:
    """Each request is predicted to be a little late, and there is nothing else to compute."""
    world = promised(ttft_s=0.101, itl_s=None, limits=SchedulerLimits(2048, 64), pages=40_000)
    for number in range(10):
        world.add(request(number, 850, 1))
    world.run()
    assert len(world.ended) + len(world.refused) == 10 and world.ended
