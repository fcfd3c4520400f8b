"""The data that a server keeps for days is bounded: the prefix tree's queue, its memory of evictions, accounts,
steps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.cost.history.step_history import DROPPED_SHARE, Row, StepHistory
from twostroke.engine.cache.evictions import LEAST_PLACES, Evictions
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.prefix_tree import STALE_ENTRIES
from twostroke.types.plan import Role

PAGE = 16


def run_once(cache: CacheManager, name: str, tokens: list[int]) -> None:
    cache.open(name, "", cache.match("", tokens))
    assert cache.grow(name, len(tokens))
    cache.commit(name, len(tokens), tokens)
    cache.close(name)


def test_a_cache_with_room_for_everything_does_not_grow_with_requests() -> None:
    cache = CacheManager(64, PAGE)
    prompts = [[10 * number + 1] * 40 for number in range(5)]
    for number in range(10_000):
        run_once(cache, str(number), prompts[number % 5])
    tree = cache.groups[0].tree
    assert len(tree._evictable) <= 2 * tree.num_nodes + STALE_ENTRIES
    cache.check()


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(2, 12), st.lists(st.integers(0, 6), min_size=1, max_size=200))
def test_the_queue_made_anew_evicts_what_the_old_one_did(num_pages: int, order: list[int]) -> None:
    """There are two caches, one of which makes its queue anew at every turn. Both have the same pages after each
    request."""
    plain, anew = CacheManager(num_pages, PAGE), CacheManager(num_pages, PAGE)
    for number, which in enumerate(order):
        tokens = [which] * PAGE + [number % 3] * 4
        for cache in (plain, anew):
            run_once(cache, str(number), tokens)
        tree = anew.groups[0].tree
        tree._drop_stale()
        assert plain.page_states() == anew.page_states()
        plain.check()


def test_a_cache_takes_no_new_pages_for_prefixes_while_memory_is_short() -> None:
    """A sequence that runs still gets all pages, and new ones are taken again when memory is free."""
    short, fresh = [False], list[int]()
    cache = CacheManager(40, PAGE, fresh.append, is_short=lambda: short[0])
    for number in range(4):
        run_once(cache, str(number), [number] * 4 * PAGE)
    assert fresh == list(range(16))
    short[0] = True
    for number in range(4, 50):
        run_once(cache, str(number), [number] * 4 * PAGE)
        cache.check()
    assert fresh == list(range(16)) and cache.pages_cached == 16
    run_once(cache, "long", [99] * 40 * PAGE)
    assert fresh == list(range(40))
    short[0] = False
    cache.check()


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(4, 30), st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=200))
def test_memory_that_is_short_refuses_no_sequence(num_pages: int, order: list[tuple[int, bool]]) -> None:
    """Whatever the moments at which memory is short, the same requests get pages as without them."""
    short = [False]
    plain, careful = CacheManager(num_pages, PAGE), CacheManager(num_pages, PAGE, is_short=lambda: short[0])
    for number, (which, short[0]) in enumerate(order):
        tokens = [which] * PAGE * (1 + which % 3) + [number % 3] * 4
        for cache in (plain, careful):
            run_once(cache, str(number), tokens)
            cache.check()
        assert careful.pages_free + careful.pages_cached == plain.pages_free + plain.pages_cached == num_pages


def test_evictions_are_remembered_in_a_table_of_one_size() -> None:
    evictions = Evictions(1)
    for path in range(1, 100_000):
        evictions.add(path)
        assert path in evictions
    assert 0 not in evictions and 99_000 in evictions and 100_000 not in evictions and 1 not in evictions
    assert len(evictions._paths) == LEAST_PLACES
    assert len(Evictions(10**9)._paths) == 65_536


def test_steps_are_kept_up_to_a_bound_and_given_as_they_were() -> None:
    history, kept = StepHistory(None, 1000, 2000), []
    for step in range(5000):
        rows = (
            Row(f"a{step}", step, 3, True, 0, 2, 1, 0, 0, Role.PREFILL),
            Row("b", 2**30 + step, 4, False, step, 0, 0, 3, 2, Role.DECODE),
        )
        history.open(step, step + 1, rows, ("c",) if step % 2 else ())
        history.recent.append((step, step + 0.5, 0.25, 0.125, 7, 0.0))
        history.ends.append(step + 0.75)
        kept.append(rows)
        assert len(history._runs) <= 1000
    assert history.fill == 1.0
    found = history._runs
    assert 1000 * (1 - DROPPED_SHARE) - 2 <= len(found) <= 1000
    assert [tuple(run.rows) for run in found] == kept[-len(found) :]
    record = history.last()
    assert record is not None and (record.begin_s, record.end_s, record.waiting) == (4999.0, 4999.75, 7)
    assert record.sequences[1].segment.start == 2**30 + 4999 and len(found[0].times) == 1
    assert [each.step_id for each in history.records()] == list(range(5000 - len(found), 5000))
