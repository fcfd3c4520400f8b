"""Pages are counted exactly where a length is a whole number of pages, and what has left the trees leaves nothing."""

from __future__ import annotations

import pytest

from twostroke.engine.cache.manager import NOTHING_CACHED, CacheManager
from twostroke.types.cache_pools import CachePools, PagePoolSize

PAGE = 4
LENGTHS = [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)]
"""Pairs of a number of tokens and the number of their pages."""


@pytest.mark.parametrize(("tokens", "pages"), LENGTHS)
def test_a_length_takes_its_pages_and_no_more(tokens: int, pages: int) -> None:
    cache = CacheManager(4, PAGE)
    cache.open("a", "", NOTHING_CACHED)
    assert cache.pages_for(tokens) == pages and cache.missing_pages([("a", tokens)]) == [pages]
    assert cache.fits(tokens, NOTHING_CACHED, [4 - pages]) and not cache.fits(tokens, NOTHING_CACHED, [5 - pages])
    assert cache.reserve("a", tokens) is not None and cache.pages_used == pages
    assert cache.grow("a", 16) and cache.pages_used == 4
    cache.truncate("a", tokens)
    assert cache.pages_used == pages
    cache.check()


@pytest.mark.parametrize("slots", [0, 80])
@pytest.mark.parametrize("window", [0, 8])
def test_salts_and_sequences_that_are_gone_leave_nothing(window: int, slots: int) -> None:
    cache = CacheManager(CachePools((PagePoolSize(60, window),), slots, 16), PAGE)
    for number in range(30):
        salt, tokens = f"salt {number}", list(range(8))
        cache.open(salt, salt, cache.match(salt, tokens))
        for end in (4, 8):
            assert cache.reserve(salt, end) is not None
            cache.commit(salt, end, tokens)
        cache.close(salt)
    trees = [group.tree for group in cache.groups] + ([cache.states.tree] if cache.states else [])
    assert [len(tree._roots) for tree in trees] == [30] * len(trees)
    cache.drop_cached()
    assert [len(tree._roots) for tree in trees] == [0] * len(trees)
    assert cache.states is None or not cache.states._newest
    cache.check()


@pytest.mark.parametrize(("tokens", "staying", "with_state"), [(7, 1, 1), (8, 2, 1), (9, 2, 2)])
def test_a_state_at_the_very_end_of_a_prompt_is_of_no_use(tokens: int, staying: int, with_state: int) -> None:
    """The last token is computed in any case. Its K and V are written a second time, but no state can go back."""
    prompt = list(range(tokens))
    for slots, pages in ((0, staying), (9, with_state)):
        cache = CacheManager(CachePools((PagePoolSize(9),), slots, 16), PAGE)
        assert cache.match("", prompt).points == ((PAGE * with_state,) if slots else ())
        cache.open("a", "", cache.match("", list(range(8))))
        for end in (4, 8):
            assert cache.reserve("a", end) is not None
            cache.commit("a", end, list(range(9)))
        assert cache.most_shared_pages(tokens) == len(cache.match("", prompt)) == pages
        assert cache.spared_tokens(cache.match("", prompt), tokens) == min(PAGE * pages, tokens - 1)
