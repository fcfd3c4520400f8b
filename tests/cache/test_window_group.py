"""Pages before a window are given back and are shared while they exist. A prefix is usable where its last window
exists."""

from __future__ import annotations

import pytest

from twostroke.engine.cache.manager import CacheManager, PageState
from twostroke.engine.cache.window_group import WindowGroup
from twostroke.ops.attention.kv_pages import first_seen
from twostroke.types.cache_pools import CachePools, PagePoolSize, window_pages

PAGE = 4


def manager(num_pages: int, window: int, full: int = 0, chunk: int = 16) -> CacheManager:
    pages = [PagePoolSize(full)] * bool(full) + [PagePoolSize(num_pages, window)]
    return CacheManager(CachePools(tuple(pages), 0, chunk), PAGE)


def compute(cache: CacheManager, name: str, tokens: list[int], end: int, chunk: int = 16) -> None:
    """Computes positions up to `end`, in chunks."""
    done = cache._holdings[name].filled_tokens
    while done < end:
        done = min(end, done + chunk)
        assert cache.reserve(name, done) is not None
        cache.commit(name, done, tokens)
        cache.check()


def held(cache: CacheManager, name: str, group: int = 0) -> list[int]:
    """The indices of the pages that the sequence has."""
    tables = cache.reserve(name, cache._holdings[name].filled_tokens)
    assert tables is not None
    return [index for index, page_id in enumerate(tables[group]) if page_id >= 0]


@pytest.mark.parametrize("window", [1, 2, 4, 5, 8, 11, 16])
@pytest.mark.parametrize("chunk", [1, 3, 4, 16])
def test_a_sequence_of_any_length_holds_a_window_a_chunk_and_a_page(window: int, chunk: int) -> None:
    cache, tokens = manager(window_pages(window, 16, PAGE), window), list(range(400))
    cache.open("a", "", cache.match("", tokens))
    for end in range(chunk, 400, chunk):
        tables = cache.reserve("a", end)
        assert tables is not None, "the pool is as large as the bound says"
        kept = [index for index, page_id in enumerate(tables[0]) if page_id >= 0]
        assert len(tables[0]) == -(-end // PAGE) and len(kept) <= window_pages(window, chunk, PAGE)
        assert kept[0] * PAGE <= max(0, end - chunk - window + 1), "what the first row sees is there"
        cache.commit("a", end, tokens)
        cache.check()


def test_what_was_given_back_stays_cached_until_its_page_is_needed() -> None:
    cache, tokens = manager(12, 8), list(range(40))
    cache.open("a", "", cache.match("", tokens))
    compute(cache, "a", tokens, 40)
    assert held(cache, "a") == [8, 9] and cache.pages_used == 2 and cache.pages_cached == 8
    assert cache.page_states().count(PageState.CACHED) == 8
    other = [1000 + token for token in tokens[:16]]
    cache.open("b", "", cache.match("", other))
    compute(cache, "b", other, 16)
    assert cache.pages_cached == 8, "two pages were free, and two of b's own are behind its window"
    assert len(cache.match("", tokens)) == 10, "the last window of the first prompt is held"
    assert len(cache.match("", tokens[:10])) == 0, "its first pages, the longest unused, have gone"


def test_a_prefix_is_usable_where_its_last_window_is() -> None:
    cache, tokens = manager(30, 8), list(range(40))
    cache.open("a", "", cache.match("", tokens))
    compute(cache, "a", tokens, 40)
    cache.close("a")
    nodes = cache.groups[0].tree.match("", tokens, 10)
    for gone in (2, 6):
        cache.groups[0].pool.release(cache.groups[0].tree.forget(nodes[gone]))
    cache.check()
    lengths = [len(cache.match("", [*tokens[: 4 * pages], 7])) for pages in range(11)]
    assert lengths == [0, 1, 2, 2, 2, 5, 6, 6, 6, 9, 10]


def test_a_hit_takes_the_last_window_alone_and_the_rest_of_the_table_is_empty() -> None:
    cache, tokens = manager(30, 8, full=30), list(range(40))
    cache.open("a", "", cache.match("", tokens))
    compute(cache, "a", tokens, 40)
    cache.open("b", "", cache.match("", [*tokens, 50]))
    assert cache.reserve("b", 41) is not None
    assert held(cache, "b", 0) == list(range(10)) and held(cache, "b", 1) == [8, 9]
    assert cache.page_states().count(PageState.SHARED) == 10 + 2
    cache.check()


def test_a_group_that_has_no_page_takes_nothing_from_the_others() -> None:
    cache, tokens = manager(5, 8, full=30), list(range(40))
    cache.open("a", "", cache.match("", tokens))
    assert cache.reserve("a", 24) is None, "six pages of the window at once"
    cache.check()
    assert cache.pages_free == 35
    compute(cache, "a", tokens, 40, chunk=cache.chunk_tokens)
    assert cache.chunk_tokens == 8 and held(cache, "a", 1) == [8, 9]


def test_a_pool_without_room_for_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a pool of 4 pages"):
        manager(3, 8)


def test_admission_counts_no_more_than_a_sequence_holds() -> None:
    cache = manager(10, 8, chunk=8)
    nothing = cache.match("", [])
    assert cache.fits(10_000, nothing, [5]) and not cache.fits(10_000, nothing, [6])
    tokens = list(range(400))
    cache.open("a", "", nothing)
    compute(cache, "a", tokens, 100, chunk=8)
    assert cache.missing_pages([("a", 400)]) == [3], "five at once, and two are held"
    assert cache.missing_pages([("a", 101)]) == [1]


@pytest.mark.parametrize("window", range(1, 3 * PAGE + 2))
def test_a_page_stays_as_long_as_the_last_position_sees_it(window: int) -> None:
    """A sequence may compute the last position of its full pages again, so the oldest page that this position sees is
    needed, and the pages before it are not."""
    group = WindowGroup(window_pages(window, 16, PAGE), PAGE, window, 16, None)
    for num_pages in range(1, 12):
        assert group.first_needed(num_pages) == max(0, first_seen(num_pages * PAGE - 1, window) // PAGE)
