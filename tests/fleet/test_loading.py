"""The choice of models to load: nine laws, each by itself, and all together over 10,000 schedules."""

from __future__ import annotations

import math

import pytest

from tests.fleet.loading_world import RULES, World
from tests.tiers import TIER
from twostroke.distributed.fleet.loading import (
    FINAL_CODES,
    Action,
    Loading,
    LoadingRules,
    ModelState,
    Refuse,
    Start,
    Stop,
)

SCHEDULES = 500 if TIER.quick else 10_000
FIRST = TIER.seed % 1_000_003
LONGEST_WAIT_S = 90.0
"""The longest wait. There are five models of which two fit, loads of 4 s and requests of 3 s; the turns add up to
this."""


@pytest.mark.parametrize("faults", [0.0, 0.15])
def test_no_request_is_lost_or_waits_for_ever(faults: float) -> None:
    """Each world checks the laws at each step; see loading_world.py. A failure can be repeated with its seed."""
    for seed in range(FIRST, FIRST + SCHEDULES // 2):
        try:
            world = World(seed, faults).run(8)
        except Exception as error:
            raise AssertionError(f"schedule {seed}, faults {faults}: {error}") from error
        if not faults:
            never = {model.name for model in world.loading if model.failed_code == "insufficient_memory"}
            assert {job.outcome for job in world.done if job.model not in never} <= {"served"}, seed
            assert world.longest_wait_s < LONGEST_WAIT_S, seed


def test_a_schedule_evicts_and_fails() -> None:
    """This shows that the schedules contain evictions and failures."""
    worlds = [World(seed, 0.15).run(12) for seed in range(60)]
    assert sum(world.starts for world in worlds) > 200
    assert any(job.outcome == "refused" for world in worlds for job in world.done)
    assert sum(world.most_bytes > 80 for world in worlds) > 20


def loading(*sizes: int, room: int = 100, rules: LoadingRules = RULES, keep_s: float = math.inf) -> Loading:
    made = Loading(room, rules)
    for index, size in enumerate(sizes):
        made.add("abcdef"[index], size, keep_s, load_s=1.0)
    return made


def loaded(made: Loading, name: str, now: float) -> None:
    made.want(name, now)
    assert made.tick(now) == [Start(name)]
    made.ready(name, now + 1)


def ask(made: Loading, name: str, now: float, requests: int = 1) -> list[Action]:
    made.observe(name, requests, now)
    return made.tick(now)


def test_a_busy_a_loading_and_a_pinned_model_stay() -> None:
    """Law 1: these models stay."""
    made = Loading(100, RULES)
    made.add("pinned", 45, pinned=True)
    made.add("busy", 25)
    made.add("loading", 25)
    made.add("wanted", 40)
    loaded(made, "pinned", 0)
    loaded(made, "busy", 1)
    made.observe("busy", 1, 2)
    made.want("loading", 2)
    assert made.tick(2) == [Start("loading")]
    assert ask(made, "wanted", 8) == []
    made.ready("loading", 9)
    made.observe("loading", 1, 9)
    assert made.tick(14) == []


def test_a_load_begins_when_the_other_process_has_ended() -> None:
    """Law 2: a load waits for the end of the other process."""
    made = loading(60, 60)
    loaded(made, "a", 0)
    assert ask(made, "b", 10) == [Stop("a")]
    assert made.tick(11) == []
    made.ended("a", 12)
    assert made.tick(12) == [Start("b")]


def test_one_load_at_a_time() -> None:
    """Law 2: loads come one at a time."""
    made = loading(20, 20)
    assert ask(made, "a", 0) == [Start("a")]
    assert ask(made, "b", 0) == []
    made.ready("a", 1)
    assert made.tick(1) == [Start("b")]


def test_two_requests_for_one_model_are_one_load_and_draining_is_waited_for() -> None:
    """Law 3: requests for one model share its load, and a new load waits for a model that drains."""
    made = loading(60)
    assert ask(made, "a", 0) == [Start("a")]
    assert ask(made, "a", 0.5, requests=2) == []
    made.ready("a", 1)
    assert ask(made, "a", 2, requests=0) == []
    made.unload("a", 2)
    assert made.tick(2) == [Stop("a")]
    assert ask(made, "a", 2.5) == []
    made.ended("a", 3)
    assert made.tick(3) == [Start("a")]
    made.add("a", 1)  # this is known already, so nothing changes
    assert made["a"].need_bytes == 60


@pytest.mark.parametrize(
    ("idle", "leaving"),
    [({"a": 10, "b": 20, "c": 30}, "a"), ({"a": 30, "b": 20, "c": 10}, "c"), ({"a": 30, "b": 10, "c": 20}, "b")],
)
def test_the_model_idle_longest_leaves(idle: dict[str, float], leaving: str) -> None:
    """Law 4: the model that is idle longest is unloaded."""
    made = loading(30, 30, 30, 25)
    for name in "abc":
        loaded(made, name, 0)
    for name, at_s in idle.items():
        made.observe(name, 1, at_s - 1)
        made.observe(name, 0, at_s)
    assert ask(made, "d", 40) == [Stop(leaving)]


def test_few_models_leave() -> None:
    """Law 4: one large model is unloaded and not two small ones, although those are idle longer."""
    made = loading(20, 20, 50, 50)
    for name in "abc":
        loaded(made, name, 0)
    made.observe("c", 1, 5)
    made.observe("c", 0, 9)
    assert ask(made, "d", 20) == [Stop("c")]


def test_who_loads_soonest_leaves_among_equals() -> None:
    """Law 4: among equals, the model that loads soonest is unloaded."""
    made = Loading(100, RULES)
    for name, load_s in (("slow", 60.0), ("quick", 1.0)):
        made.add(name, 50, load_s=load_s)
        made.want(name, 0)
        made.tick(0)
        made.ready(name, load_s)
    for name in ("slow", "quick"):
        made[name].idle_since_s = 60.0
    made.add("new", 50)
    assert ask(made, "new", 100) == [Stop("quick")]


def test_turns_are_not_shorter_than_three_loads_and_nobody_starves() -> None:
    """Law 5: `a` is idle but was just loaded. Later `a` is always busy, and must be unloaded all the same."""
    made = loading(60, 60)
    loaded(made, "a", 0)
    assert ask(made, "b", 1.5) == []
    made.observe("a", 1, 2)
    assert made.tick(4.1) == []
    assert made.tick(11.4) == []
    assert made.tick(11.6) == [Stop("a")]
    made.ended("a", 14)
    assert made.tick(14) == [Start("b")]
    made.ready("b", 15)
    assert made["a"].waits


def test_an_idle_model_leaves_after_its_turn() -> None:
    """Law 5: an idle model is unloaded after its turn."""
    made = loading(60, 60)
    loaded(made, "a", 0)
    assert ask(made, "b", 1.5) == []
    assert made.tick(4.1) == [Stop("a")]


def test_a_small_model_passes_a_large_one_that_waits() -> None:
    made = loading(60, 60, 20)
    loaded(made, "a", 0)
    made.observe("a", 1, 1)
    assert ask(made, "b", 2) == []
    assert ask(made, "c", 3) == [Start("c")]


def test_keep_alive_counts_from_the_end_of_the_last_request() -> None:
    """Law 6: the time counts from that end, and the model is never loaded again by itself."""
    made = loading(60, keep_s=5)
    loaded(made, "a", 0)
    made.observe("a", 1, 3)
    assert made.tick(30) == []
    made.observe("a", 0, 30)
    made.keep("a", 7)
    assert made.tick(36) == []
    assert made.tick(37) == [Stop("a")]
    made.ended("a", 38)
    assert made["a"].keep_s == 5
    assert made.tick(38) == []


def test_a_model_with_keep_alive_zero_leaves_after_its_last_request() -> None:
    made = loading(60)
    loaded(made, "a", 0)
    made.observe("a", 2, 1)
    made.keep("a", 0)
    assert made.tick(2) == []
    assert ask(made, "a", 3, requests=1) == []
    assert ask(made, "a", 4, requests=0) == [Stop("a")]


def test_nothing_is_loaded_that_nobody_asks_for() -> None:
    """Law 7: a model is loaded only for a request."""
    made = loading(60)
    made.keep("a", 5)
    made.unload("a", 0)
    assert made.tick(1) == []
    made.observe("a", 1, 2)
    made.observe("a", 0, 2)
    assert made.tick(2) == []


@pytest.mark.parametrize("code", sorted(FINAL_CODES))
def test_a_final_code_is_told_at_once(code: int) -> None:
    """Law 8: a final exit code is reported at once."""
    made = loading(60)
    assert ask(made, "a", 0) == [Start("a")]
    made.ended("a", 1, code, "The file is no model.")
    assert made.tick(1) == [Refuse("a", "model_failed", "The file is no model.", RULES.failed_s)]
    assert ask(made, "a", 2) == [Refuse("a", "model_failed", "The file is no model.", RULES.failed_s - 1)]
    assert ask(made, "a", 1 + RULES.failed_s) == [Start("a")]


def test_memory_taken_by_others_is_told_with_its_arithmetic() -> None:
    """Law 8: the report contains the arithmetic."""
    made = loading(60)
    ask(made, "a", 0)
    made.ended("a", 1, 4, "It needs 60 and 5 are there.")
    (refused,) = made.tick(1)
    assert isinstance(refused, Refuse)
    assert (refused.code, refused.why) == ("insufficient_memory", "It needs 60 and 5 are there.")


def test_other_ends_are_tried_three_times() -> None:
    """Law 8: after other exit codes, the load is tried three times."""
    made = loading(60)
    assert ask(made, "a", 0) == [Start("a")]
    made.ended("a", 1, -9)
    assert made.tick(1) == []
    assert made.tick(1.3) == [Start("a")]
    made.ended("a", 2, -9)
    assert made.tick(2.6) == [Start("a")]
    made.ended("a", 3, -9)
    (refused,) = made.tick(3)
    assert isinstance(refused, Refuse)
    assert refused.code == "model_failed"
    assert made["a"].state is ModelState.FAILED


def test_a_crash_of_a_loaded_model_is_a_load_again() -> None:
    made = loading(60)
    loaded(made, "a", 0)
    made.observe("a", 1, 5)
    made.ended("a", 70, -11)
    assert made.tick(70.3) == [Start("a")]
    made.ready("a", 71)
    assert made.tick(71) == []


def test_a_pinned_model_that_dies_is_loaded_again_without_a_request() -> None:
    made = Loading(100, RULES)
    made.add("a", 50, pinned=True)
    loaded(made, "a", 0)
    made.ended("a", 100, -9)
    assert made.tick(101) == [Start("a")]


def test_a_load_that_hangs_is_ended_and_who_waits_for_it_hears() -> None:
    """Law 9: the load is ended, and waiting requests get an error."""
    made = loading(60, rules=LoadingRules(load_wait_s=10, most_load_s=50))
    assert ask(made, "a", 0) == [Start("a")]
    (refused,) = made.tick(11)
    assert isinstance(refused, Refuse)
    assert (refused.code, refused.retry_after_s) == ("model_not_loaded", 10)
    assert made.tick(49) == []
    assert made.tick(51) == [Stop("a")]


def test_the_wait_is_bounded() -> None:
    """Law 9: no request waits longer than the bound."""
    made = loading(60, 60, rules=LoadingRules(load_wait_s=10, max_wait_s=1e9))
    loaded(made, "a", 0)
    made.observe("a", 1, 1)
    assert ask(made, "b", 2) == []
    assert made.tick(11) == []
    (refused,) = made.tick(12.5)
    assert isinstance(refused, Refuse)
    assert refused.retry_after_s == 10


def test_what_never_fits_is_refused_with_the_sum() -> None:
    made = Loading(2_000_000_000, RULES)
    made.add("small", 1_500_000_000, pinned=True)
    made.add("large", 1_000_000_000)
    (refused,) = ask(made, "large", 0)
    assert isinstance(refused, Refuse)
    assert "1.00 GB" in refused.why
    assert "1.50 GB" in refused.why
    assert "2.00 GB" in refused.why


def test_the_most_models_at_a_time() -> None:
    made = loading(10, 10, 10, rules=LoadingRules(most_loaded=2))
    loaded(made, "a", 0)
    loaded(made, "b", 2)
    assert ask(made, "c", 20) == [Stop("a")]


def test_a_load_of_the_start_lets_nobody_leave() -> None:
    made = loading(60, 60)
    loaded(made, "a", 0)
    made.want("b", 20, gentle=True)
    (refused,) = made.tick(20)
    assert isinstance(refused, Refuse)
    assert refused.code == "deferred"
    assert made["a"].state is ModelState.READY
    assert ask(made, "b", 21) == [Stop("a")]


def test_work_that_has_time_takes_no_model_from_people() -> None:
    made = loading(60, 60, 30)
    assert made.is_quiet("a", 0), "there is room"
    loaded(made, "a", 0)
    made.observe("a", 1, 1)
    made.observe("a", 0, 2)
    assert made.is_quiet("a", 2) and made.is_quiet("c", 2)
    assert not made.is_quiet("b", 2), "a was used just now"
    assert made.is_quiet("b", 2 + RULES.max_wait_s)
    made.observe("a", 1, 50)
    assert not made.is_quiet("b", 90), "a is in use"
    made.observe("a", 0, 60)
    made.observe("b", 1, 61)
    assert not made.is_quiet("a", 61), "somebody waits for the room"
