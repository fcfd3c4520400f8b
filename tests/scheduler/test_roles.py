"""A plan contains the role of each sequence; the number of its rows does not decide it."""

from __future__ import annotations

from tests.scheduler.fakes import LineCost, World, request
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.plan import Role
from twostroke.types.request import Request


def roles_of(world: World, asked: Request) -> list[tuple[int, int, Role]]:
    """(start, rows, role) in each step of the request until it ends."""
    found = []
    while world.scheduler.has_work:
        note = world.step()
        assert note is not None
        found += [(part.start, part.num_tokens, part.role) for part in note.parts if part.name == asked.request_id]
    return found


def new_world(step_tokens: int, pages: int = 4000) -> World:
    return World(None, SchedulerLimits(step_tokens, 4, 0), LineCost(), pages=pages)


def test_a_chunk_of_one_row_is_prefill_and_what_follows_the_first_token_is_decode() -> None:
    world, asked = new_world(4), request(1, 9, 3)
    world.add(asked)
    assert roles_of(world, asked) == [
        (0, 4, Role.PREFILL),
        (4, 4, Role.PREFILL),
        (8, 1, Role.PREFILL),
        (9, 1, Role.DECODE),
        (10, 1, Role.DECODE),
    ]


def test_a_prompt_of_one_token_and_one_of_which_all_but_the_last_is_cached_are_prefill() -> None:
    world = new_world(64)
    one = request(1, 1, 2)
    world.add(one)
    assert roles_of(world, one) == [(0, 1, Role.PREFILL), (1, 1, Role.DECODE)]
    first, again = request(2, 32, 2), request(2, 32, 2)
    world.add(first)
    assert roles_of(world, first)[0] == (0, 32, Role.PREFILL)
    world.ended.clear()
    world.add(again)
    assert roles_of(world, again) == [(31, 1, Role.PREFILL), (32, 1, Role.DECODE)]


def test_what_was_preempted_computes_its_output_again_as_prefill() -> None:
    """Two sequences grow in a pool with room for one and a half of them."""
    world = new_world(7, pages=20)
    first, second = request(1, 30, 30), request(2, 30, 12)
    world.add(first)
    world.add(second)
    found = roles_of(world, second)
    back = [index for index in range(1, len(found)) if found[index][0] <= found[index - 1][0]]
    assert len(back) == 1, "it was preempted once"
    again = found[back[0] :]
    prefills = [each for each in again if each[2] is Role.PREFILL]
    end = prefills[-1][0] + prefills[-1][1]
    assert again[: len(prefills)] == prefills and end > 31, "all that is known, before anything decodes"
    assert [start for start, _, _ in again[len(prefills) :]] == list(range(end, 41))
