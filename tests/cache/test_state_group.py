"""Slots of states: snapshots are taken where they will be of use, copies have an order, and the pool is never
overdrawn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twostroke.engine.cache.manager import NOTHING_CACHED, CacheManager
from twostroke.engine.cache.state_group import GRID_TOKENS
from twostroke.types.cache_pools import CachePools, PagePoolSize

PAGE = 4


class States:
    """A manager with states, and the content of each slot: the tokens that were computed into it."""

    def __init__(self, slots: int, full: int = 0) -> None:
        pages = (PagePoolSize(full),) if full else ()
        self.cache = CacheManager(CachePools(pages, slots), PAGE)
        self.slots: dict[int, tuple[int, ...]] = {}

    def open(self, name: str, tokens: Sequence[int]) -> int:
        """Opens a sequence. Returns the number of tokens that need not be computed."""
        matched = self.cache.match("", tokens)
        self.cache.open(name, "", matched)
        return len(matched) * PAGE

    def step(self, name: str, tokens: Sequence[int], start: int, end: int) -> None:
        """Computes positions [start, end) of one sequence."""
        for source, target in self.cache.take_copies():
            self.slots[target] = () if source < 0 else self.slots[source]
        slot = self.cache.slot_of(name)
        assert self.slots[slot] == tuple(tokens[:start])
        assert self.cache.grow(name, end)
        self.slots[slot] = tuple(tokens[:end])
        self.cache.settle_copies(False)
        self.cache.commit(name, end, tokens)
        self.cache.check()

    @property
    def snapshots(self) -> int:
        """The number of snapshots."""
        states = self.cache.states
        assert states is not None
        return states.tree.num_unshared


def test_a_prompt_goes_on_from_the_snapshot_at_its_end() -> None:
    world, prompt = States(4), list(range(11))
    assert world.open("a", prompt) == 0
    world.step("a", prompt, 0, 8)
    world.step("a", prompt, 8, 11)
    assert world.open("b", prompt) == 8
    world.step("b", prompt, 8, 11)
    assert world.open("c", [*prompt[:8]]) == 0, "the last token is always computed, so a state behind it is of no use"


def test_a_chunk_that_ends_within_a_page_leaves_no_snapshot() -> None:
    world, prompt = States(4), list(range(40))
    world.open("a", prompt)
    world.step("a", prompt, 0, 7)
    world.step("a", prompt, 7, 13)
    assert world.snapshots == 0
    world.step("a", prompt, 13, 20)
    assert world.snapshots == 1 and len(world.cache.match("", prompt)) == 5


def test_the_newest_snapshot_moves_on_with_its_sequence_unless_another_sequence_went_on_from_it() -> None:
    world, tokens = States(6), list(range(100))
    world.open("a", tokens[:9])
    world.step("a", tokens, 0, 8)
    for end in range(9, 41):
        world.step("a", tokens, end - 1, end)
    assert world.snapshots == 2, "the end of the prompt, and the newest"
    assert world.open("b", [*tokens[:40], 7]) == 40
    for end in range(41, 61):
        world.step("a", tokens, end - 1, end)
    assert world.snapshots == 3, "b went on from one of them"


def test_points_are_the_end_of_the_prompt_where_it_departs_and_a_grid() -> None:
    world, stem = States(8), list(range(40))
    first = [*stem, *range(100, 130)]
    assert world.cache.match("", first).points == (68,)
    world.open("a", first)
    world.step("a", first, 0, 68)
    second = [*stem, *range(200, 230)]
    assert world.cache.match("", second).points == (40, 68), "nothing can be gone on from, but 40 tokens are known"
    long = list(range(1000, 1000 + 2 * GRID_TOKENS + 50))
    assert world.cache.match("", long).points == (GRID_TOKENS, 2 * GRID_TOKENS, 2 * GRID_TOKENS + 48)


def test_a_prefix_needs_pages_for_all_of_it_and_a_state_at_its_end() -> None:
    world, prompt = States(6, full=40), list(range(30))
    world.open("a", prompt)
    world.step("a", prompt, 0, 12)
    world.step("a", prompt, 12, 28)
    world.step("a", prompt, 28, 30)
    assert len(world.cache.match("", prompt)) == 7
    assert len(world.cache.match("", [*prompt[:26], 5])) == 0, "the snapshot at 12 has moved on"
    assert world.cache.match("", [*prompt[:26], 5]).points == (24,)
    world.cache.close("a")
    world.cache.groups[0].drop_cached()
    assert len(world.cache.match("", prompt)) == 0, "the state is there, the pages are not"


def test_running_sequences_take_the_slots_of_snapshots_and_no_more() -> None:
    world = States(3)
    prompts = [[100 * number + i for i in range(9)] for number in range(4)]
    for number, prompt in enumerate(prompts[:3]):
        assert world.cache.fits(10, NOTHING_CACHED, [])
        world.open(str(number), prompt)
        world.step(str(number), prompt, 0, 8)
    assert world.snapshots == 0 and not world.cache.fits(10, NOTHING_CACHED, [])
    with pytest.raises(ValueError, match="no slot"):
        world.open("3", prompts[3])
    world.cache.close("1")
    assert world.open("3", prompts[3]) == 0
    world.cache.check()


def test_a_snapshot_that_is_taken_by_its_own_follower_is_not_copied() -> None:
    world, prompt = States(1), list(range(9))
    world.open("a", prompt)
    world.step("a", prompt, 0, 8)
    assert world.snapshots == 0, "no slot is left for one"
    world.cache.close("a")
    world = States(2)
    world.open("a", prompt)
    world.step("a", prompt, 0, 8)
    world.open("b", [50])  # "b" takes the snapshot's slot
    assert world.snapshots == 0
    world.cache.close("b")
    world.step("a", prompt, 8, 9)
    world.cache.close("a")
    world.cache.check()


def test_snapshots_of_a_step_that_failed_are_forgotten() -> None:
    world, prompt = States(4), list(range(9))
    world.open("a", prompt)
    world.step("a", prompt, 0, 8)
    assert world.snapshots == 1
    assert world.cache.take_copies()
    world.cache.settle_copies(True)
    world.cache.check()
    assert world.snapshots == 0 and len(world.cache.match("", prompt)) == 0


def test_one_that_was_gone_on_from_outlives_those_that_were_not() -> None:
    world = States(4)
    for number, asked in enumerate([0, 0, 1, 2, 3]):
        prompt = [100 * asked + i for i in range(9)]
        start = world.open(str(number), prompt)
        world.step(str(number), prompt, start, 8) if start < 8 else world.step(str(number), prompt, 8, 9)
        world.cache.close(str(number))
    assert len(world.cache.match("", list(range(9)))) == 2


@pytest.mark.parametrize("right", [True, False])
def test_a_state_goes_back_to_before_guesses_that_were_wrong(right: bool) -> None:
    world, tokens = States(3), list(range(20))
    states = world.cache.states
    assert states is not None
    world.open("a", tokens[:3])
    world.step("a", tokens, 0, 2)
    assert world.cache.hold_state("a") and states.pool.num_free == 1
    world.cache.check()
    world.slots |= {to: world.slots[source] for source, to in world.cache.take_copies()}
    world.slots[world.cache.slot_of("a")] = (*tokens[:2], 99)
    world.cache.settle_copies(False)
    world.cache.settle_state("a", right)
    world.cache.check()
    assert states.pool.num_free == 2
    copies = world.cache.take_copies()
    if right:
        assert not copies
    else:
        assert [world.slots[source] for source, _ in copies] == [tuple(tokens[:2])]
        assert [to for _, to in copies] == [world.cache.slot_of("a")]


def test_guesses_leave_the_last_slot_and_what_is_held_ends_with_its_sequence() -> None:
    world, tokens = States(3), list(range(9))
    states = world.cache.states
    assert states is not None
    for name in "ab":
        world.open(name, tokens)
    assert not world.cache.hold_state("a"), "one slot is left for a sequence that waits"
    world.cache.close("b")
    assert world.cache.hold_state("a")
    world.cache.close("a")
    assert states.pool.num_free == 3
    world.cache.check()


def test_a_sequence_that_finds_no_slot_leaves_nothing_in_the_tree() -> None:
    states = States(1)
    states.open("a", [1, 2])
    with pytest.raises(ValueError, match="no slot"):
        states.cache.open("b", "salt", NOTHING_CACHED)
    group = states.cache.states
    assert group is not None and group.tree.known_root("salt") is None
    states.cache.check()
