"""Why a prefix missed, as the scheduler reports it, compared with a simple account of the cache's content."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.engine.cache.manager import NOTHING_CACHED, CacheManager
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.types.event import FinishedEvent
from twostroke.types.recorded.prefix import MissReason, PrefixMiss
from twostroke.types.request import Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

PAGE = 16


class Heart:
    """A scheduler and the ends of its requests."""

    def __init__(self, num_pages: int = 64) -> None:
        self.cache = CacheManager(num_pages, PAGE)
        self.scheduler = Scheduler(self.cache, SchedulerLimits(max_step_tokens=2048))
        self.ends: dict[str, FinishedEvent] = {}

    def add(self, name: str, tokens: list[int], salt: str = "") -> None:
        params = SamplingParams(max_tokens=1)
        self.scheduler.add(Request(name, name, tuple(tokens), params, 0, 1, frozenset(), 0.0, salt))

    def run(self) -> None:
        while (plan := self.scheduler.schedule(0.0)) is not None:
            sampled = {s.request.request_id: (SampledToken(7),) for s in plan.sequences if s.samples}
            for event in self.scheduler.commit(plan, StepResult(sampled), 0.0):
                if isinstance(event, FinishedEvent):
                    self.ends[event.request_id] = event

    def miss(self, name: str, tokens: list[int], salt: str = "") -> PrefixMiss | None:
        self.add(name, tokens, salt)
        self.run()
        return self.ends[name].prefix_miss


def tokens(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(10, 10_000) for _ in range(length)]


def test_an_empty_cache_and_short_prompts() -> None:
    heart = Heart()
    assert heart.miss("short", tokens(1, PAGE - 1)) == PrefixMiss(MissReason.SHORT, 0)
    assert heart.miss("first", tokens(2, 50), "salt") == PrefixMiss(MissReason.EMPTY, 0)
    assert heart.miss("again", tokens(2, 50), "salt") is None
    assert heart.miss("other salt", tokens(2, 50), "pepper") == PrefixMiss(MissReason.EMPTY, 0)


@pytest.mark.parametrize(("length", "spared"), [(47, 32), (48, 47), (49, 48)])
def test_of_a_prompt_that_was_read_all_but_its_last_token_is_spared(length: int, spared: int) -> None:
    heart = Heart()
    heart.miss("first", tokens(1, length))
    assert heart.miss("again", tokens(1, length)) is None
    assert heart.ends["again"].num_cached_tokens == spared
    heart.cache.check()


@pytest.mark.parametrize("position", [0, 1, 15, 16, 17, 31, 32, 40, 63, 64])
def test_the_first_differing_position(position: int) -> None:
    heart = Heart()
    base = tokens(1, 100)
    heart.miss("first", base)
    changed = [*base[:position], 5, *base[position + 1 :]]
    miss = heart.miss("second", changed)
    found = position // PAGE * PAGE
    assert heart.ends["second"].num_cached_tokens == found
    assert miss == PrefixMiss(MissReason.DIFFERS, position, 96 - found)


def test_what_was_evicted() -> None:
    heart = Heart(num_pages=16)
    base = tokens(1, 130)
    heart.miss("first", base)
    heart.miss("thief", tokens(2, 190))
    miss = heart.miss("second", base)
    found = heart.ends["second"].num_cached_tokens
    assert miss == PrefixMiss(MissReason.EVICTED, found, 128 - found) and found < 128


def test_what_is_still_being_computed() -> None:
    heart = Heart()
    base = tokens(1, 100)
    heart.add("first", base)
    heart.add("second", [*base[:70], *tokens(2, 30)])
    heart.run()
    assert heart.ends["first"].prefix_miss == PrefixMiss(MissReason.EMPTY, 0)
    assert heart.ends["second"].prefix_miss == PrefixMiss(MissReason.UNFINISHED, 0, 64, "first")


def test_nothing_alike() -> None:
    heart = Heart()
    heart.miss("first", tokens(1, 100))
    miss = heart.miss("second", tokens(2, 100))
    assert miss is not None and miss.reason is MissReason.DIFFERS and miss.lost_tokens == 0


def test_a_longer_prompt_goes_on_where_the_cached_one_ended() -> None:
    heart = Heart()
    base = tokens(1, 100)
    heart.miss("first", base)
    assert heart.miss("second", [*base, *tokens(2, 60)]) == PrefixMiss(MissReason.DIFFERS, 96, 0)


def plainly(cached: list[list[int]], asked: list[int], size: int) -> PrefixMiss | None:
    """The definition, by a comparison with every cached prompt. `cached` is in order, the latest last."""

    def pages(of: list[int]) -> list[tuple[int, ...]]:
        return [tuple(of[i : i + size]) for i in range(0, len(of) - size + 1, size)]

    wanted = pages(asked)
    found = max((common(pages(one), wanted) for one in cached), default=0)
    if found == len(wanted):
        return None if found else PrefixMiss(MissReason.SHORT, 0)
    if not any(pages(one) for one in cached):
        return PrefixMiss(MissReason.EMPTY, 0)
    first_seen: dict[tuple[int, ...], int] = {}
    for number, one in enumerate(cached):
        if pages(one)[:found] == wanted[:found] and len(pages(one)) > found:
            first_seen.setdefault(pages(one)[found], number)
    best, near = (0, -1), None
    for page, _ in sorted(first_seen.items(), key=lambda each: -each[1]):
        equal = [a == b for a, b in zip(page, wanted[found], strict=True)]
        if (equal.index(False), sum(equal)) > best:
            best, near = (equal.index(False), sum(equal)), page
    behind = [pages(one)[found + 1 :] for one in cached if pages(one)[: found + 1] == [*wanted[:found], near]]
    lost = max((common(one, wanted[found + 1 :]) for one in behind), default=0)
    lost_tokens = min((lost + 1 if best[0] or lost else 0) * size, len(asked) - 1 - found * size)
    return PrefixMiss(MissReason.DIFFERS, found * size + best[0], lost_tokens)


def common(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> int:
    """The length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PROMPTS, max_size=10), PROMPTS)
def test_a_miss_is_explained_as_by_comparing_with_all_prompts(cached: list[list[int]], asked: list[int]) -> None:
    cache = CacheManager(200, 3)
    for number, prompt in enumerate(cached):
        cache.open(str(number), "", cache.match("", prompt))
        assert cache.grow(str(number), len(prompt))
        cache.commit(str(number), len(prompt), prompt)
        cache.close(str(number))
    assert cache.miss("", asked, cache.match("", asked)) == plainly(cached, asked, 3)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=40))
def test_reserved_pages_are_those_of_the_table(turns: list[tuple[int, int]]) -> None:
    """Sequences grow, shrink their wishes, share and replace pages. The remembered answer is never an old one."""
    cache = CacheManager(9, 4)
    filled: dict[int, int] = {}
    for who, wanted in turns:
        name, prompt = str(who), [who % 2] * 41  # two prompts of each kind, which share their pages
        if who not in filled:
            cache.open(name, "", NOTHING_CACHED)
        page_ids = cache.reserve(name, wanted)
        if page_ids is None:
            cache.close(name)
            filled.pop(who, None)
            continue
        assert list(page_ids[0]) == cache.pages_of(name)[: cache.pages_for(wanted)]
        assert cache.reserve(name, wanted) is page_ids
        filled[who] = max(filled.get(who, 0), wanted)
        cache.commit(name, filled[who], prompt)
        again = cache.reserve(name, wanted)
        assert again is not None and list(again[0]) == cache.pages_of(name)[: cache.pages_for(wanted)]
        cache.check()
