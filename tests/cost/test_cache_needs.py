"""A budget of bytes becomes pools. No group starves, none has more than it can use, and nothing exceeds the budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.cost.cache_needs import CacheNeeds, GroupBytes
from twostroke.types.cache_pools import window_pages

FULL, WINDOW = GroupBytes(16_000), GroupBytes(80_000, 1024)


def needs(*groups: GroupBytes, state_bytes: int = 0, context: int = 32_768, sequences: int = 8) -> CacheNeeds:
    return CacheNeeds(groups, state_bytes, context, sequences, 512)


@pytest.mark.parametrize("state_bytes", [0, 5_000_000])
@pytest.mark.parametrize("groups", [(FULL,), (WINDOW,), (FULL, WINDOW), (FULL, GroupBytes(16_000, 128), WINDOW), ()])
@settings(max_examples=examples(50), deadline=None)
@given(budget=st.integers(0, 10**10), bounded=st.booleans())
def test_pools_fit_their_budget(groups: tuple[GroupBytes, ...], state_bytes: int, budget: int, bounded: bool) -> None:
    if not groups and not state_bytes:
        return
    found = needs(*groups, state_bytes=state_bytes)
    pools = found.pools(budget, bounded)
    assert 0 <= found.bytes_of(pools) <= budget
    assert all(pool.num_pages >= 0 for pool in pools.pages) and pools.state_slots >= 0


def test_pages_that_stay_alone_get_the_whole_budget_up_to_what_can_be_of_use() -> None:
    alone = needs(FULL)
    assert alone.pools(1_600_000, True).num_pages == (100,)
    assert alone.pools(10**12, True).num_pages == (8 * 32_768 // 16,)
    assert alone.pools(10**12, False).num_pages == (10**12 // 16_000,)


def test_shares_are_those_of_a_typical_sequence() -> None:
    """4,096 positions need 256 pages that stay. A window of 1,024 with a chunk of 512 needs at most 97."""
    both = needs(FULL, WINDOW)
    assert both.pages(WINDOW, 4096) == window_pages(1024, 512, 16) == 97
    sequence = 256 * 16_000 + 97 * 80_000
    full, window = both.pools(10 * sequence, False).num_pages
    assert window == 970 and full == 2560


def test_a_window_gets_no_more_than_twice_what_running_sequences_hold() -> None:
    both = needs(FULL, WINDOW)
    full, window = both.pools(10**12, True).num_pages
    assert window == 2 * 8 * 97 and full == 8 * 32_768 // 16


def test_a_window_longer_than_the_context_is_the_context() -> None:
    short = needs(GroupBytes(16_000, 4096), context=256)
    assert short.least_pools().num_pages == (window_pages(256, 1, 16),)
    assert short.pools(10**9, True).pages[0].window == 256


def test_what_one_sequence_takes_at_most() -> None:
    both = needs(FULL, WINDOW, state_bytes=7)
    assert both.window_bytes(32_768) == both.window_bytes(4096) == 97 * 80_000
    assert both.sequence_bytes(32_768) == 2048 * 16_000 + 97 * 80_000 + 7
    assert both.sequence_bytes(160) == 10 * 96_000 + 7, "a short one holds as many pages of each"
    assert both.growing_bytes == 1000


def test_slots_take_half_of_the_budget_at_most_where_there_are_pages() -> None:
    assert needs(FULL, state_bytes=10**6).pools(10**7, True).state_slots == 5
    assert needs(state_bytes=10**6).pools(10**7, True).state_slots == 10
    assert needs(state_bytes=10**6).pools(10**9, True).state_slots == 4 * 8
