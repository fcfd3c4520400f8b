"""Requests whose masks take long: others do not wait for all of them in each step, and each has its turn."""

from __future__ import annotations

from dataclasses import replace

from tests.scheduler.fakes import LineCost, World, request
from twostroke.engine.scheduler.limits.heavy_masks import ALONE_S, BESIDE_S, HEAVY_S
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.request import Request

HEAVY = 48


class TimedMask:
    """Satisfies TokenMask. It allows all tokens, and takes the given seconds."""

    def __init__(self, mask_s: float) -> None:
        self.mask_s, self.num_tokens = mask_s, 0

    def feed(self, token_id: int) -> None:
        self.num_tokens += 1

    def rewind(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens

    def bits(self) -> bytes:
        return b""


def masked(number: int, mask_s: float, output: int = 200) -> Request:
    return replace(request(number, 3, output), mask=TimedMask(mask_s))


def world_of(*asked: Request, steps: int = 4) -> World:
    world = World(None, SchedulerLimits(512, 64), LineCost())
    for each in asked:
        world.add(each)
    for _ in range(steps):
        world.step()
    return world


def computed(world: World, steps: int) -> list[set[int]]:
    """The requests that each of the next steps computes."""
    found = []
    for _ in range(steps):
        world.step()
        found.append({int(part.name) for part in world.steps[-1].parts})
    return found


def test_a_plain_request_is_in_every_step_and_hard_grammars_take_turns() -> None:
    mask_s = BESIDE_S / 4.5
    world = world_of(*[masked(each, mask_s) for each in range(HEAVY)], request(100, 3, 200))
    steps = computed(world, HEAVY // 4)
    assert all(100 in step and len(step) == 1 + 4 for step in steps)
    assert set().union(*steps) == {*range(HEAVY), 100}, "each has had its turn"


def test_hard_grammars_alone_take_longer_steps() -> None:
    world = world_of(*[masked(each, ALONE_S / 12.5) for each in range(HEAVY)])
    steps = computed(world, HEAVY // 12)
    assert all(len(step) == 12 for step in steps) and set().union(*steps) == set(range(HEAVY))


def test_one_mask_is_made_however_long_it_takes() -> None:
    world = world_of(masked(0, 1.0), masked(1, 1.0), request(100, 3, 200))
    assert sorted(map(sorted, computed(world, 2))) == [[0, 100], [1, 100]]


def test_easy_grammars_are_in_every_step() -> None:
    world = world_of(*[masked(each, HEAVY_S) for each in range(HEAVY)], request(100, 3, 200))
    assert all(len(step) == HEAVY + 1 for step in computed(world, 3))


def test_turns_change_no_token() -> None:
    def tokens(mask_s: float) -> dict[str, list[int]]:
        world = world_of(*[masked(each, mask_s, 20) for each in range(8)], request(100, 3, 30)).run()
        return {name: [token for token, _ in found] for name, found in world.tokens.items()}

    assert tokens(BESIDE_S) == tokens(0.0)
