"""The default without objectives: no stream waits longer for a prompt than the rule allows, on any machine."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.fakes import PAGE, LineCost, World, request
from tests.scheduler.test_objective_schedules import random_requests
from tests.tiers import examples
from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.limits.chunk_sizer import FILLED_SHARE, KEPT_SHARE, MIN_CHUNK_TOKENS
from twostroke.engine.scheduler.limits.gap_limiter import GAP_DECODE_STEPS, LEAST_GAP_S, GapRule
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.policy import arrival_policy

SLOW = LineCost(step_s=0.020, row_s=0.003, stream_s=0.002)
"""Roughly a 1B model on two cores: a step of 512 rows takes 1.6 s."""
FAST = LineCost(step_s=0.0005, row_s=0.00005, stream_s=0.0001)
"""Roughly the embedded model."""
SLOWER = LineCost(step_s=0.060, row_s=0.003, stream_s=0.002)
"""A decode step takes more than a fifth of 250 ms."""
HUGE = LineCost(step_s=0.150, row_s=0.010, stream_s=0.002)
"""Eight decode steps take more than 250 ms."""


def default(
    cost: LineCost, truth: LineCost | None = None, guessed: bool = False, limits: SchedulerLimits | None = None
) -> World:
    """The scheduler that the engine builds without any flag."""
    return World(arrival_policy(cost, GapRule(), PAGE, guessed), limits or SchedulerLimits(), truth or cost, 100_000)


def with_stream(world: World) -> World:
    """One stream runs, and then a long prompt comes."""
    world.add(request(1, 40, 400))
    for _ in range(3):
        world.step()
    world.add(request(2, 4000, 4))
    return world


def longest_gap_s(world: World, name: str) -> float:
    return max(b - a for (_, a), (_, b) in pairwise(world.tokens[name]))


@pytest.mark.parametrize("cost", [SLOW, FAST, HUGE])
def test_no_gap_of_a_stream_is_longer_than_the_rule_and_the_bound_is_used(cost: LineCost) -> None:
    world = with_stream(default(cost)).run()
    decode_s = cost.seconds([Segment.decode(50)])
    bound_s = max(LEAST_GAP_S, GAP_DECODE_STEPS * decode_s)
    assert longest_gap_s(world, "1") <= bound_s
    chunks = [part.num_tokens for note in world.steps for part in note.parts if part.name == "2" and part.prefill]
    if cost is FAST:
        assert max(chunks) == 511, "a fast machine keeps its large steps"
    else:
        assert longest_gap_s(world, "1") > 0.9 * FILLED_SHARE * KEPT_SHARE * bound_s
        assert all(tokens % max(1, PAGE // 4) == 0 for tokens in chunks[:-1])


def test_a_static_step_is_longer_than_the_rule() -> None:
    """This shows the purpose of the rule: the same load with full steps."""
    assert longest_gap_s(with_stream(World(None, SchedulerLimits(), SLOW, 100_000)).run(), "1") > 1.5


def test_prompts_alone_keep_large_steps() -> None:
    world = default(SLOW)
    world.add(request(1, 2000, 4))
    first = world.step()
    assert first is not None and first.num_tokens == 512


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_it_learns_from_its_first_steps_however_wrong_the_guess_is(factor: float) -> None:
    """guess = truth / factor. Within five steps next to the stream, the chunks are as large as with the truth."""
    guess = LineCost(SLOW.step_s / factor, SLOW.row_s / factor, SLOW.stream_s / factor)
    found = []
    for world in (with_stream(default(guess, SLOW, guessed=True)), with_stream(default(SLOW))):
        world.run()
        found.append([part.num_tokens for note in world.steps for part in note.parts if part.name == "2"])
    learned, known = found
    assert abs(learned[5] - known[5]) <= 2 * PAGE
    if factor <= 2:
        gaps = [note.seconds for note in world.steps]
        assert max(gaps) <= LEAST_GAP_S, "a guess that is too fast by less than its margin breaks nothing"


def test_one_slow_step_changes_nothing_and_two_make_it_careful() -> None:
    def chunk_after(slow_steps: int) -> int:
        world = with_stream(default(SLOW))
        for index in range(6):
            usual = world.truth
            world.truth = LineCost(1.5, 0.003, 0.002) if index < slow_steps else usual
            world.step()
            world.truth = usual
        note = world.step()
        assert note is not None
        return note.num_tokens

    assert chunk_after(1) == chunk_after(0)
    assert MIN_CHUNK_TOKENS <= chunk_after(3) < chunk_after(0)


def test_the_rule_is_that_of_the_machine_and_not_of_its_neighbours() -> None:
    """Two decode steps of three take twice as long. Slow steps stay under the bound of undisturbed ones, too."""
    world, quiet = default(SLOWER), SLOWER
    world.add(request(1, 40, 400))
    noisy = LineCost(2 * quiet.step_s, 2 * quiet.row_s, 2 * quiet.stream_s)
    for index in range(40):
        world.truth = quiet if index % 3 == 1 else noisy
        world.step()
    world.add(request(2, 4000, 4))
    world.truth = noisy
    note = world.step()
    assert note is not None and 32 < note.num_tokens
    assert note.seconds <= GAP_DECODE_STEPS * quiet.seconds([Segment.decode(80)])


@pytest.mark.parametrize(("decode_ms", "bound_ms"), [(1, 250), (50, 250), (51, 408), (200, 1600)])
def test_250_ms_or_8_decode_steps_where_one_is_slow(decode_ms: int, bound_ms: int) -> None:
    assert GapRule().bound_s(lambda _: decode_ms / 1e3, []) == pytest.approx(bound_ms / 1e3)
    assert "250 ms" in str(GapRule()) and "50 ms" in str(GapRule())


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_chunking_gives_the_solo_tokens_and_no_request_starves(seed: int) -> None:
    dice = random.Random(seed)
    requests = random_requests(dice)
    cost = LineCost(step_s=0.05, row_s=dice.choice([0.0001, 0.01, 0.1]), jagged_s=dice.choice([0.0, 0.2]))
    truth = LineCost(step_s=0.05, row_s=dice.choice([0.0001, 0.01]), jagged_s=dice.choice([0.0, 0.5]))
    limits = SchedulerLimits(dice.choice([16, 64, 500]), dice.choice([1, 3, 16]))
    world = default(cost, truth, dice.choice([True, False]), limits).run(requests)
    for asked in requests:
        alone = World(None, SchedulerLimits(500, 1), LineCost()).run([asked])
        name = asked.request_id
        assert [token for token, _ in world.tokens[name]] == [token for token, _ in alone.tokens[name]]
        assert world.ended[name] is alone.ended[name]
