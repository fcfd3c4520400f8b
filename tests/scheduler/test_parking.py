"""Requests whose readers have stopped give their places and pages to others, and lose nothing."""

from __future__ import annotations

from tests.scheduler.fakes import LineCost, World, request
from twostroke.engine.scheduler.limits.limits import SchedulerLimits

PLACES = 4


def world_of(requests: int, output: int = 12, steps: int = 3) -> World:
    world = World(None, SchedulerLimits(512, PLACES), LineCost())
    for number in range(requests):
        world.add(request(number, 5, output))
    for _ in range(steps):
        world.step()
    return world


def tokens(world: World) -> dict[str, list[int]]:
    return {name: [token for token, _ in found] for name, found in world.tokens.items()}


def test_a_request_that_waits_gets_the_place_and_the_pages_of_a_parked_one() -> None:
    world = world_of(PLACES)
    used = world.scheduler.gauges().pages_used
    world.scheduler.parking.park("1")
    assert world.scheduler.gauges().pages_used < used and world.scheduler.gauges().running == PLACES - 1
    count = len(world.tokens["1"])
    world.add(request(9, 5, 4))
    for _ in range(4):
        world.step()
    assert len(world.tokens["9"]) == 4 and len(world.tokens["1"]) == count


def test_a_parked_request_goes_on_with_the_same_tokens() -> None:
    alone = tokens(world_of(PLACES).run())
    world = world_of(PLACES)
    for name in ("1", "1", "3"):  # a second call changes nothing
        world.scheduler.parking.park(name)
    for _ in range(3):
        world.step()
    for name in ("3", "1", "1", "0", "unknown"):
        world.scheduler.parking.go_on(name)
    assert tokens(world.run()) == alone


def test_a_request_is_parked_before_it_has_a_place() -> None:
    world = world_of(PLACES + 1)
    world.scheduler.parking.park(str(PLACES))
    for _ in range(14):
        world.step()
    assert len(world.tokens["0"]) == 12 and not world.tokens[str(PLACES)]
    assert world.scheduler.has_work and world.scheduler.schedule(world.now_s) is None
    world.scheduler.parking.go_on(str(PLACES))
    assert len(world.run().tokens[str(PLACES)]) == 12


def test_a_parked_request_ends_like_any_other() -> None:
    world = world_of(PLACES)
    world.scheduler.parking.park("1")
    (end,) = world.scheduler.abort("1", world.now_s)
    assert end.request_id == "1"
    world.run()
    assert not world.scheduler.has_work and world.scheduler.gauges().pages_used == 0
