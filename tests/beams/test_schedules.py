"""A beam search gives the same bits in any schedule, whatever runs next to it and wherever its beams are preempted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beams.machine import EverySecond, Found, Loaded, drive, load, machine, masked, members
from tests.tiers import fewer
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.request import FinishReason, Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

FAMILIES = ["llama3-grouped", "mistral-window", "mamba2", "qwen3-next"]
END_ID = 7
Load = Callable[[str], Loaded]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Load:
    return cache(lambda family: load(family, tmp_path_factory.mktemp(family)))


def beams(dice: random.Random, name: str, prompt: tuple[int, ...]) -> list[Request]:
    params = SamplingParams(
        n=dice.choice([2, 3, 5]),
        use_beam_search=True,
        length_penalty=dice.choice([0.5, 1.0, 2.0]),
        early_stopping=dice.choice([True, False, "never"]),
        min_tokens=dice.choice([0, 3]),
        logprobs=dice.choice([None, 0, 2]),
        prompt_logprobs=dice.choice([None, 1]),
        repetition_penalty=dice.choice([1.0, 1.0, 1.4]),
        frequency_penalty=dice.choice([0.0, 0.0, 0.7]),
        logit_bias=dice.choice([{}, {}, {5: 2.0}]),
    )
    ends = frozenset({END_ID, *(dice.randrange(100) for _ in range(dice.choice([0, 3])))})
    group = members(name, prompt, params, dice.randint(3, 40), ends)
    return group if dice.random() < 0.5 else masked([replace(each, mask=EverySecond()) for each in group])


def random_groups(dice: random.Random) -> list[list[Request]]:
    """Beam searches and streams whose prompts have a common beginning."""
    stem = tuple(dice.randrange(100) for _ in range(70))
    groups = [beams(dice, "search", stem[: dice.choice([5, 16, 37, 70])])]
    for index in range(dice.randint(0, 3)):
        prompt = (*stem[: dice.choice([0, 16, 40])], *(dice.randrange(100) for _ in range(dice.randint(1, 30))))
        if dice.random() < 0.3:
            groups.append(beams(dice, f"s{index}", prompt))
            continue
        params = SamplingParams(n=dice.choice([1, 2]), temperature=1.0, logprobs=0)
        groups.append(members(f"s{index}", prompt, params, dice.randint(1, 40), frozenset({END_ID})))
    return groups


def alone(model: Loaded, group: list[Request], kv: KVKind = KVKind.F32) -> dict[str, Found]:
    with machine(model, 60, SchedulerLimits(128, 8), kv) as (core, caches):
        return drive(core, caches, [(0, masked(group))])


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=fewer(6, quick=2), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_schedule_gives_the_answers_of_the_solo_run(family: str, seed: int, loaded: Load) -> None:
    dice, model = random.Random(seed), loaded(family)
    groups, kv = random_groups(dice), dice.choice(list(KVKind))
    expected: dict[str, Found] = {}
    for group in groups:
        expected |= alone(model, group, kv)
    limits = SchedulerLimits(dice.choice([4, 16, 61, 256]), dice.choice([1, 2, 4, 8]), dice.choice([0, 2]))
    longest = max(len(group[0].prompt_token_ids) + group[0].max_tokens + 1 for group in groups)
    pages = -(-longest // PAGE_TOKENS) + dice.choice([0, 1, 4, 40])
    with machine(model, pages, limits, kv) as (core, caches):
        found = drive(core, caches, [(dice.randint(0, 30), masked(group)) for group in groups])
    assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_beams_that_are_preempted_in_mid_search_change_nothing(family: str, loaded: Load) -> None:
    """A case made for this, so that the property above cannot pass only because it never meets preemption."""
    params = SamplingParams(n=4, use_beam_search=True, logprobs=1, early_stopping="never")
    prompt, ends = tuple(range(20, 60)), frozenset({END_ID})
    group = [replace(each, mask=EverySecond()) for each in members("b", prompt, params, 40, ends)]
    stream = members("s", prompt[:18], SamplingParams(temperature=1.0, logprobs=0), 60, ends)
    expected = alone(loaded(family), group)
    # The pages are enough for two beams. There are as many slots for states as sequences may run, fewer than beams.
    with machine(loaded(family), 8, SchedulerLimits(32, 3, 0)) as (core, caches):
        found = drive(core, caches, [(0, masked(group)), (3, stream)])
        preemptions = core.scheduler.gauges().preemptions_total
    assert {name: each for name, each in found.items() if name.startswith("b")} == expected
    assert preemptions > 0


def test_beams_share_full_pages_and_copy_one_each(loaded: Load) -> None:
    params = SamplingParams(n=4, use_beam_search=True)
    group = members("b", tuple(range(50)), params, 12, frozenset())
    most_used = most_waste = copies = 0
    with machine(loaded("llama3-grouped"), 40, SchedulerLimits(64, 8)) as (core, caches):
        for request in group:
            core.scheduler.add(request)  # type: ignore[attr-defined]
        while core.scheduler.has_work:
            step = core.step(lambda: 0.0)
            gauges = core.scheduler.gauges()
            most_used, most_waste = max(most_used, gauges.pages_used), max(most_waste, gauges.waste_tokens)
            copies += 0 if step is None else len(step.plan.page_copies)
            assert step is None or all(each.num_tokens == 1 for each in step.plan.sequences[1:])  # nothing twice
    assert most_used == 3 + 4  # the prompt's full pages count once, and each beam has a page of its own
    # After the 50 tokens, each of four beams has 14 positions of a page and fills some of them. Each beam has its own
    # copy of the last part of the prompt, or of the text that beams share.
    assert most_waste > 4 * 2 and copies > 3
    assert gauges.waste_tokens == gauges.pages_used == 0


def test_what_a_step_fails_on_ends_the_whole_search(loaded: Load) -> None:
    params = SamplingParams(n=3, use_beam_search=True)
    with machine(loaded("llama3-grouped"), 40, SchedulerLimits(64, 8)) as (core, caches):
        runner = core._executor
        real, count = runner.execute, 0

        def execute(plan: object) -> object:
            nonlocal count
            count += 1
            if count == 4:
                raise RuntimeError("a planted fault")
            return real(plan)

        core._executor = type("Broken", (), {"execute": staticmethod(execute)})()
        group = members("b", tuple(range(30)), params, 12, frozenset())
        for request in group:
            core.scheduler.add(request)  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError):
            while True:
                core.step(lambda: 0.0)
        ended = core.interrupted.events if core.interrupted else ()
        assert [(event.request_id, event.reason) for event in ended] == [
            (request.request_id, FinishReason.ERROR) for request in group
        ]
        caches.check()
        assert not core.scheduler.has_work and core.scheduler.gauges().pages_used == 0


@pytest.mark.parametrize("at_step", [0, 1, 5])
def test_an_abort_ends_the_whole_search_and_frees_its_pages(at_step: int, loaded: Load) -> None:
    params = SamplingParams(n=3, use_beam_search=True)
    with machine(loaded("llama3-grouped"), 40, SchedulerLimits(64, 8)) as (core, caches):
        group = members("b", tuple(range(30)), params, 12, frozenset())
        for request in group:
            core.scheduler.add(request)  # type: ignore[attr-defined]
        for _ in range(at_step):
            core.step(lambda: 0.0)
        events = core.scheduler.abort("b/1", 0.0)  # type: ignore[attr-defined]
        assert [(event.request_id, event.reason) for event in events] == [
            (request.request_id, FinishReason.ABORT) for request in group
        ]
        caches.check()
        assert not core.scheduler.has_work and core.scheduler.gauges().pages_used == 0
        assert core.scheduler.abort("b/1", 0.0) == []  # type: ignore[attr-defined]
