"""Skipped steps give exactly the results of steps that run: times, tokens, pages, to the last bit."""

from __future__ import annotations

import gc
import itertools
import random
from dataclasses import asdict, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.machines import cost_of, setup
from tests.tiers import examples
from twostroke.cost.shape import Segment
from twostroke.engine.cache.manager import NOTHING_CACHED, CacheManager, PageState
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.lab.sim.ahead.scheduler import LookAheadScheduler
from twostroke.lab.sim.fleet.fleet import Fleet, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.sim.garbage import YOUNG_OBJECTS, seldom_collected
from twostroke.lab.sim.observe import Notebook
from twostroke.lab.sim.prompts import heart_request
from twostroke.lab.sim.replica import Replica
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.cache_pools import CachePools, PagePoolSize, window_pages
from twostroke.types.errors import OutOfMemory


@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize("machine", ["measured", "rtx-4090", "h100-sxm"])
@settings(max_examples=examples(40), deadline=None)
@given(starts=st.lists(st.integers(0, 5000), min_size=1, max_size=12), steps=st.integers(1, 60))
def test_a_run_costs_what_its_steps_cost(machine: str, window: int, starts: list[int], steps: int) -> None:
    cost = cost_of(machine, window)
    one_by_one = [cost.predict([Segment.decode(start + step) for start in starts]).seconds for step in range(steps)]
    assert list(cost.decode_run(starts, steps)) == one_by_one


@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize("machine", ["measured", "rtx-4090", "h100-sxm"])
@settings(max_examples=examples(40), deadline=None)
@given(
    starts=st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    others=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200), st.booleans(), st.integers(0, 3)), max_size=4),
)
def test_a_step_beside_streams_costs_what_the_whole_step_costs(
    machine: str, window: int, starts: list[int], others: list[tuple[int, int, bool, int]]
) -> None:
    cost, chunks = cost_of(machine, window), [Segment(*each) for each in others]
    whole = cost.predict([*(Segment.decode(start) for start in starts), *chunks])
    assert cost.predict_beside(starts, chunks) == whole


def some_requests(dice: random.Random) -> list[WorkloadRequest]:
    rate = dice.choice([20.0, 200.0, 5000.0])
    now_s, made = 0.0, []
    for _ in range(dice.randint(1, 25)):
        now_s += dice.expovariate(rate)
        prompt, blocks = dice.randint(1, 150), ()
        if dice.random() < 0.5:
            blocks = tuple(range(dice.choice([0, 50]), dice.choice([52, 55])))[: prompt // 8]
        output = dice.choice([1, 2, dice.randint(1, 30), dice.randint(1, 200)])
        made.append(WorkloadRequest(now_s, prompt, output, blocks, 8, priority=dice.choice([0, 0, 0, 1])))
    scores = random.Random(now_s)  # these are dice of its own, so that the examples below do not change
    if scores.random() < 0.7:
        return made
    made = [replace(each, scored=scores.random() < 0.3) for each in made]
    return [replace(each, output_tokens=0) if each.scored and scores.random() < 0.5 else each for each in made]


def some_pools(dice: random.Random, how: ReplicaSetup) -> CachePools:
    """For half of the seeds, pages that stay. For the others windows, states, or all of them."""
    assert isinstance(how.pools, int)
    full, window, states = dice.choice([(1, 0, 0), (1, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)])
    pages = [PagePoolSize(how.pools)] * full
    size = dice.choice([3, 16, 50])
    least = window_pages(size, 1, how.page_tokens)
    pages += [PagePoolSize(least + dice.choice([0, 3, 20, 100]), size)] * window
    slots = how.limits.max_sequences + dice.choice([0, 3, 20])
    return CachePools(tuple(pages), slots * states, how.limits.max_step_tokens)


def run_until(replica: Replica, end_s: float) -> None:
    """Runs every step that begins before end_s, except steps without visible effects. The last may end later."""
    while replica.next_s < end_s:
        replica.turn()


def simulate(
    asked: list[WorkloadRequest],
    how: ReplicaSetup,
    skips: bool,
    cuts: list[float],
    gauges: list[tuple[Gauges, list[int]]] | None = None,
) -> tuple[dict[str, dict[str, object]], Replica]:
    """Submits each request when its time has come, as a fleet does, and inspects the replica at the cuts. Where
    `gauges` takes the results, it inspects more: the counts, and how many pages are in each state."""
    notebook = Notebook()
    replica = Replica("0", how, notebook, skips=skips)
    moments = sorted([(cut, -1) for cut in cuts] + [(each.arrival_s, number) for number, each in enumerate(asked)])
    for at_s, number in moments:
        run_until(replica, at_s)
        if gauges is not None and number < 0:
            replica.settle(at_s)
            states = replica.cache.page_states()
            gauges.append((replica.scheduler.gauges(), [states.count(state) for state in PageState]))
        if number >= 0:
            notebook.open(str(number), asked[number])
            try:
                replica.submit(heart_request(asked[number], number, str(number)))
            except OutOfMemory:
                notebook.seen[str(number)].error = "refused"
    run_until(replica, float("inf"))
    return {name: asdict(seen) for name, seen in notebook.seen.items()}, replica


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=90)  # a prompt's last page is in the tree already, and the pool is nearly full
@example(seed=510)
@example(seed=504)  # a window gives pages back while a request waits for pages
@example(seed=104375)  # a sequence ends in a step in which another's snapshot is evicted
def test_skipping_changes_nothing(seed: int) -> None:
    dice = random.Random(seed)
    asked = some_requests(dice)
    step_tokens = dice.choice([1, 8, 64, 512])
    how = setup(
        num_pages=dice.choice([26, 40, 60, 400]),  # prompts have up to 100 tokens, and one more must fit
        step_tokens=step_tokens,
        sequences=min(step_tokens, dice.choice([1, 3, 8])),
        page_tokens=dice.choice([4, 16]),
        watermark=dice.choice([0, 2]),
    )
    cuts = [dice.uniform(0, 2) for _ in range(dice.choice([0, 20]))]
    how = replace(how, gap_rule=dice.choice([None, GapRule(0.001, 2), GapRule(0.003, 1)]))
    how = replace(how, pools=some_pools(random.Random(seed), how))
    slow_seen, slow = simulate(asked, how, False, [])
    fast_seen, fast = simulate(asked, how, True, cuts)
    assert fast_seen == slow_seen
    assert (fast.steps, fast.clock.now_s, fast.scheduler.gauges()) == (
        slow.steps,
        slow.clock.now_s,
        slow.scheduler.gauges(),
    )
    assert fast.busy_s == pytest.approx(slow.busy_s, rel=1e-12)
    fast.scheduler._cache.check()
    assert not fast.outstanding and not slow.outstanding


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_at_every_moment_counts_are_those_of_single_steps(seed: int) -> None:
    dice = random.Random(seed)
    asked = some_requests(dice)
    num_pages = dice.choice([40, 60, 400])
    how = setup(
        num_pages=num_pages,
        step_tokens=dice.choice([8, 64]),
        sequences=dice.choice([3, 8]),
        page_tokens=dice.choice([1, 4, 16]) if seed % 4 else 4,
    )
    how = replace(how, pools=num_pages * 16 // how.page_tokens, gap_rule=GapRule(0.002, 2))
    cuts = [dice.uniform(0, dice.choice([0.1, 2])) for _ in range(10)]
    slow: list[tuple[Gauges, list[int]]] = []
    fast: list[tuple[Gauges, list[int]]] = []
    assert simulate(asked, how, True, cuts, fast)[0] == simulate(asked, how, False, cuts, slow)[0]
    assert fast == slow


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_tokens_of_streams_are_reported_now_and_then(seed: int) -> None:
    dice = random.Random(seed)
    asked, how = some_requests(dice), setup(sequences=dice.choice([1, 3, 8]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twostroke.lab.sim.replica.MOST_ENDS", dice.choice([1, 7]))
        often, _ = simulate(asked, how, True, [])
    assert often == simulate(asked, how, False, [])[0]


def test_a_prompt_that_finds_no_page_takes_none_from_a_stream_of_its_step() -> None:
    """Batch work streams. A prompt is read next to it in twelve steps, and the pages that it counted on are gone."""
    how = setup(num_pages=26, step_tokens=8, page_tokens=4, watermark=0)
    put_back = 0
    for first, second in itertools.product(range(4, 13), range(82, 92, 3)):
        asked = [WorkloadRequest(0.0, first, 60, priority=1), WorkloadRequest(0.0001, second, 4)]
        fast, _ = simulate(asked, how, True, [])
        assert fast == simulate(asked, how, False, [])[0]
        put_back += [seen["preemptions"] for seen in fast.values()] == [0, 1]
    assert put_back > 10


def test_a_prompt_without_an_answer_that_fills_the_pool_is_refused() -> None:
    """The scheduler wants room for one token more than the prompt has, whether that token comes or not."""
    asked = [WorkloadRequest(0.0, tokens, 0, scored=True) for tokens in (103, 104)]
    seen, _ = simulate(asked, setup(num_pages=26, page_tokens=4), True, [])
    assert [each["error"] for each in seen.values()] == ["", "refused"]
    fleet = Fleet(FleetPlan(setup(num_pages=26, page_tokens=4)), LeastLoaded())
    assert [bool(each.error) for each in fleet.run(asked).seen] == [False, True]


def test_a_full_replica_with_a_queue_plans_nearly_no_stream_one_by_one() -> None:
    """All places are taken, and requests wait. New requests are planned next to streams that need no inspection."""
    asked = [WorkloadRequest(0.001 * number, 40, 30 + number % 17) for number in range(60)]
    planned = []
    with pytest.MonkeyPatch.context() as patch:
        real = Scheduler.schedule
        patch.setattr(Scheduler, "schedule", lambda one, now: planned.append(now) or real(one, now))
        _, replica = simulate(asked, setup(num_pages=4000), True, [])
    assert replica.steps > 250 and len(planned) < 25


def test_skipping_does_happen_and_is_cut_by_an_arrival() -> None:
    asked = [WorkloadRequest(0.0, 20, 200), WorkloadRequest(0.05, 20, 5)]
    notebook = Notebook()
    replica = Replica("0", setup(), notebook)
    notebook.open("0", asked[0])
    replica.submit(heart_request(asked[0], 0, "0"))
    turns = 0
    while replica.next_s < 0.05:
        replica.turn()
        turns += 1
    notebook.open("1", asked[1])
    replica.submit(heart_request(asked[1], 1, "1"))
    run_until(replica, float("inf"))
    assert turns < 6 and replica.steps > 150
    first, second = notebook.seen["0"], notebook.seen["1"]
    assert len(first.times_s) == 200 and len(second.times_s) == 5
    assert any(first.times_s[i] == second.times_s[0] for i in range(200)), "both got a token in one step"


def test_who_looks_ahead_begins_with_an_empty_cache_and_asks_for_no_misses() -> None:
    cache = CacheManager(8, 4)
    cache.open("a", "", NOTHING_CACHED)
    assert cache.grow("a", 4)
    cache.commit("a", 4, [1, 2, 3, 4])
    with pytest.raises(ValueError, match="prefix tree already"):
        LookAheadScheduler(cache, SchedulerLimits(), None, lambda *_: (), lambda *_: None)
    empty = CacheManager(8, 4)
    assert empty.miss("", [1, 2, 3, 4, 5], NOTHING_CACHED) is not None
    empty.forget_misses()
    assert empty.miss("", [1, 2, 3, 4, 5], NOTHING_CACHED) is None


@pytest.mark.parametrize(
    "pools",
    [CachePools((PagePoolSize(40, 16),), 0, 64), CachePools((PagePoolSize(40),), 12, 64)],
    ids=["window", "states"],
)
def test_streams_that_give_pages_back_are_planned_step_by_step(pools: CachePools) -> None:
    with pytest.raises(ValueError, match="step by step"):
        LookAheadScheduler(CacheManager(pools, 4), SchedulerLimits(), None, lambda *_: (), lambda *_: None)
    asked = [WorkloadRequest(0.0, 20, 30)]
    seen, replica = simulate(asked, replace(setup(num_pages=40), pools=pools), True, [])
    assert seen["0"]["error"] == "" and replica.steps >= 30


def test_garbage_is_searched_for_as_before_when_a_simulation_has_ended() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), seldom_collected():
        assert gc.get_threshold() == (YOUNG_OBJECTS, *before[1:])
        raise KeyError
    assert gc.get_threshold() == before
