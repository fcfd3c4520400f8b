"""Paused sequences, forks, and what happens to them where pages or copies fail: the scheduler without a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.plan import Plan, Role
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

PAGE = 4


def made(pages: int, **limits: int) -> tuple[Scheduler, CacheManager]:
    cache = CacheManager(pages, PAGE)
    return Scheduler(cache, SchedulerLimits(**{"max_step_tokens": 64, "watermark_pages": 0, **limits})), cache


def beam(name: str, length: int = 6) -> Request:
    params = SamplingParams(n=3, use_beam_search=True)
    return Request(name, "group", tuple(range(length)), params, 0, 40, frozenset(), 0.0)


def stream(name: str) -> Request:
    return Request(name, name, (90, 91, 92), SamplingParams(), 0, 40, frozenset(), 0.0)


def sampled(plan: Plan) -> StepResult:
    return StepResult({each.request.request_id: (SampledToken(7),) for each in plan.sequences if each.samples})


def step(scheduler: Scheduler, cache: CacheManager) -> Plan:
    plan = scheduler.schedule(0.0)
    assert plan is not None
    scheduler.commit(plan, sampled(plan), 0.0)
    cache.check()
    return plan


def rows(plan: Plan) -> dict[str, tuple[int, int]]:
    return {each.request.request_id: (each.start, each.num_tokens) for each in plan.sequences}


def test_a_paused_sequence_waits_for_its_token() -> None:
    scheduler, cache = made(20)
    scheduler.add(beam("a"))
    plan = scheduler.schedule(0.0)
    assert plan is not None
    assert scheduler.commit(plan, sampled(plan), 0.0) == [TokenEvent("a", 7, None, 0.0)]
    assert scheduler.schedule(0.0) is None and scheduler.has_work
    with pytest.raises(KeyError):
        scheduler.steering.extend("b", 5)
    scheduler.steering.extend("a", 5)
    again = step(scheduler, cache)
    assert rows(again) == {"a": (6, 1)} and again.sequences[0].known_token_ids[-1] == 5


def test_a_fork_shares_full_pages_and_copies_the_last() -> None:
    scheduler, cache = made(20)
    scheduler.add(beam("a"))
    step(scheduler, cache)
    scheduler.steering.branch(beam("b"), "a")
    cache.check()
    assert cache.pages_of("b")[0] == cache.pages_of("a")[0] and cache.pages_of("b")[1] != cache.pages_of("a")[1]
    assert cache.waste_tokens == 2 + 2 + 2  # two empty positions of each last page, and the two copied positions
    source, target = cache.pages_of("a")[1], cache.pages_of("b")[1]
    for name in ("a", "b"):
        scheduler.steering.extend(name, 5 if name == "a" else 6)
    plan = step(scheduler, cache)
    assert plan.page_copies == ((0, source, target),)
    assert rows(plan) == {"a": (6, 1), "b": (6, 1)}
    assert step_without_copies(scheduler, cache)


def step_without_copies(scheduler: Scheduler, cache: CacheManager) -> bool:
    for name in ("a", "b"):
        scheduler.steering.extend(name, 8)
    return step(scheduler, cache).page_copies == ()


def test_at_the_end_of_a_page_nothing_is_copied() -> None:
    scheduler, cache = made(20)
    scheduler.add(beam("a", 8))
    step(scheduler, cache)
    scheduler.steering.branch(beam("b", 8), "a")
    assert cache.pages_of("a") == cache.pages_of("b") and cache.waste_tokens == 0
    for name in ("a", "b"):
        scheduler.steering.extend(name, 5)
    assert step(scheduler, cache).page_copies == ()


def test_a_fork_without_a_page_waits_and_is_computed_again() -> None:
    scheduler, cache = made(3)
    scheduler.add(beam("a"))
    scheduler.add(stream("s"))
    step(scheduler, cache)
    scheduler.steering.branch(beam("b"), "a")
    scheduler.steering.extend("a", 5)
    scheduler.steering.extend("b", 6)
    plan = step(scheduler, cache)
    assert "b" not in rows(plan) and plan.page_copies == () and "b" in plan.preempted
    scheduler.abort("s", 0.0)
    scheduler.finish("a", FinishReason.STOP, 0.0)
    later = step(scheduler, cache)
    assert rows(later) == {"b": (4, 3)}  # the full page is shared in spite of that
    assert later.sequences[0].role is Role.PREFILL and list(later.sequences[0].known_token_ids)[-1] == 6


def test_a_paused_sequence_gives_way_where_nothing_else_could_go_on() -> None:
    scheduler, cache = made(3)
    scheduler.add(beam("a", 8))
    step(scheduler, cache)
    scheduler.add(stream("s"))
    scheduler.add(replace(stream("t"), prompt_token_ids=tuple(range(40, 48))))
    assert rows(step(scheduler, cache)) == {"s": (0, 3)}
    scheduler.abort("s", 0.0)
    plan = step(scheduler, cache)  # "a" is still paused and has two of three pages
    assert rows(plan) == {"t": (0, 8)} and "a" in plan.preempted
    scheduler.finish("t", FinishReason.STOP, 0.0)
    scheduler.steering.extend("a", 5)
    assert step(scheduler, cache).sequences[0].known_token_ids[-1] == 5


def test_what_may_not_have_been_copied_is_computed_again() -> None:
    """A step fails that had copies for a sequence but did not compute that sequence. So the content of its page is
    unknown."""
    scheduler, cache = made(20)
    scheduler.add(stream("s"))
    scheduler.add(beam("a"))
    step(scheduler, cache)
    scheduler.steering.branch(beam("b"), "a")
    plan = scheduler.schedule(0.0)  # only the stream: the search has not finished its step yet
    assert plan is not None and rows(plan) == {"s": (3, 1)} and plan.page_copies
    (ended,) = scheduler.commit(plan, StepResult({}, {"s": "broken"}), 0.0)
    assert isinstance(ended, FinishedEvent) and ended.reason is FinishReason.ERROR
    cache.check()
    for name in ("a", "b"):
        scheduler.steering.extend(name, 5)
    assert rows(step(scheduler, cache)) == {"a": (6, 1), "b": (4, 3)}
