"""Pages that come from outside are held until the prompt is queued. Where there is no room, nothing changes."""

from __future__ import annotations

from twostroke.engine.cache.graft import Graft, GraftEnd
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.sparse_tree import SparseTree
from twostroke.types.cache_pools import CachePools, PagePoolSize

PAGE = 4
WINDOW = 8


def manager(*pages: PagePoolSize, slots: int = 0) -> CacheManager:
    return CacheManager(CachePools(pages, slots, 16), PAGE)


def test_the_pages_of_a_closed_graft_stay_cached() -> None:
    cache, tokens = manager(PagePoolSize(6)), list(range(16))
    graft = Graft(cache, "", tokens, 4)
    assert graft.reserve(3) == [(0, 0, 0), (0, 1, 1), (0, 2, 2)]
    graft.commit(3)
    cache.check()
    assert graft.finish((), state=False) == GraftEnd()
    graft.close()
    graft.close()
    cache.check()
    assert cache.grafts == [] and cache.pages_cached == 3 and len(cache.match("", tokens)) == 3


def test_a_group_without_room_takes_nothing_from_the_others() -> None:
    cache, tokens = manager(PagePoolSize(10), PagePoolSize(3)), list(range(40))
    graft = Graft(cache, "", tokens, 10)
    assert graft.reserve(4) is None
    assert cache.pages_free == 13
    assert graft.reserve(3) is not None
    cache.check()


def test_a_window_without_room_holds_none_of_the_pages_that_are_there() -> None:
    cache, tokens = manager(PagePoolSize(20), PagePoolSize(4, WINDOW)), list(range(16))
    cache.open("a", "", cache.match("", tokens))
    assert cache.reserve("a", 16) is not None
    cache.commit("a", 16, tokens)
    cache.close("a")
    window = cache.groups[1]
    first, second, _, last = window.tree.match("", tokens, 4)
    assert isinstance(window.tree, SparseTree)
    window.pool.release(window.tree.forget(last))
    others = [window.pool.allocate(), window.tree.share(first), window.tree.share(second)]
    counts = window.pool.counts()
    assert None not in others and window.pages_left == 1, "the third page, which the window needs, is not held"
    graft = Graft(cache, "", tokens, 4)
    assert graft.finish({(1, 3)}, state=False) == GraftEnd()
    assert window.pool.counts() == counts


def test_a_slot_of_a_pending_copy_is_not_written_and_stays_free() -> None:
    cache, tokens = manager(PagePoolSize(10), slots=2), list(range(16))
    cache.open("a", "", cache.match("", tokens))
    cache.close("a")
    states = cache.states
    assert states is not None and states.slots_left == 2
    graft = Graft(cache, "", tokens, 4)
    assert graft.reserve(4) is not None
    graft.commit(4)
    assert graft.finish((), state=True).slot == 1, "zeros will be copied to slot 0"
    assert states.slots_left == 2
    cache.check()
