"""Places between calls: one request need not wait until a call with many completions has ended some of them."""

from __future__ import annotations

import pytest

from tests.scheduler.fakes import LineCost, World, request
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.places import FEWEST_LARGE
from twostroke.types.request import Request

PLACES = 16


def call(first: int, completions: int, output: int = 400, priority: int = 0) -> list[Request]:
    """The completions of one call. They share a prompt, which is short."""
    group = f"call {first}"
    return [request(first + place, 3, output, priority=priority, group=group) for place in range(completions)]


def world_with(*asked: Request, places: int = PLACES, steps: int = 12) -> World:
    world = World(None, SchedulerLimits(512, places), LineCost())
    for each in asked:
        world.add(each)
    for _ in range(steps):
        world.step()
    return world


def names(world: World) -> set[str]:
    """The sequences that the last step computed."""
    return {part.name for part in world.steps[-1].parts}


def come(world: World, *later: Request, steps: int = 2) -> None:
    for each in later:
        world.add(each)
    for _ in range(steps):
        world.step()


@pytest.mark.parametrize("calls", [1, 3])
def test_a_later_request_runs_at_once_beside_calls_with_many_completions(calls: int) -> None:
    world = world_with(*[each for first in range(calls) for each in call(1000 * first, 40)])
    assert len(names(world)) == PLACES, "a call takes all places where no other needs one"
    later = [request(9000 + each, 20, 4) for each in range(3)]
    come(world, *later, steps=len(later))
    assert all(world.tokens[each.request_id] for each in later)
    assert world.scheduler.gauges().preemptions_total <= len(later) + calls - 1, "one place for each that needed one"


def test_a_call_keeps_the_places_of_a_small_one() -> None:
    world = world_with(*call(0, 40))
    come(world, *[request(9000 + each, 3, 400) for each in range(50)], steps=60)
    assert len([name for name in names(world) if int(name) < 40]) == FEWEST_LARGE


@pytest.mark.parametrize("completions", [1, FEWEST_LARGE])
def test_small_calls_give_up_no_place(completions: int) -> None:
    world = world_with(*[each for first in range(20) for each in call(100 * first, completions)])
    before = names(world)
    come(world, request(9000, 3, 4))
    assert names(world) == before and len(before) == PLACES
    assert world.scheduler.gauges().preemptions_total == 0


def test_batch_work_takes_no_place_of_others() -> None:
    world = world_with(*call(0, 40))
    come(world, request(9000, 3, 4, priority=1))
    assert not world.tokens["9000"] and world.scheduler.gauges().preemptions_total == 0


def test_a_place_that_was_given_up_changes_no_token() -> None:
    alone = world_with(*call(0, 40, output=30), steps=0).run()
    disturbed = world_with(*call(0, 40, output=30))
    come(disturbed, *[request(9000 + each, 3, 30) for each in range(5)], steps=1)
    disturbed.run()
    assert disturbed.scheduler.gauges().preemptions_total > 0
    for place in range(40):
        assert [token for token, _ in disturbed.tokens[str(place)]] == [token for token, _ in alone.tokens[str(place)]]


def test_completions_that_wait_are_not_passed_for_ever() -> None:
    """Requests come all the time, as many as there are places for."""
    world = world_with(*call(0, 40, output=30))
    for number in range(5000, 6000):
        come(world, request(number, 3, 30, world.now_s), steps=1)
    assert all(len(world.tokens[str(place)]) == 30 for place in range(40))


def test_a_request_does_not_wait_for_the_completions_that_enter_before_it() -> None:
    """A step has room for few prompts, so places are free for many steps while a large call takes them."""
    world = World(None, SchedulerLimits(5 * PLACES, 8 * PLACES), LineCost())
    for each in call(0, 8 * PLACES):
        world.add(each)
    while len(names(world) if world.steps else ()) < PLACES + 1:
        world.step()
    come(world, request(9000, 3, 4), steps=1)
    assert world.tokens["9000"] and len(names(world)) < 5 * PLACES


def test_a_call_of_better_priority_takes_places_before_batch_work() -> None:
    world = World(None, SchedulerLimits(5 * PLACES, 8 * PLACES), LineCost())
    for each in call(0, 8 * PLACES):
        world.add(each)
    world.add(request(9000, 3, 4, priority=1))
    while len(names(world) if world.steps else ()) < 4 * PLACES:
        world.step()
    assert not world.tokens["9000"]
