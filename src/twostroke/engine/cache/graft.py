"""Pages of a prompt that come from outside, such as from a disk: the caches hold them until the prompt is queued.

    places = graft.reserve(8)       page ids for the next pages of the groups without a window; the caller writes them
    graft.commit(8)                 they are in the prefix tree, where the scheduler finds them
    graft.finish(windows, state)    pages of the groups with a window and the slot of the state, to be written now
    graft.close()                   everything is cached, and may be evicted like all other pages

A graft is used between two steps. A page or slot that `finish` gives holds nothing until the caller has written it, so
the caller writes it before anything else happens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.page_group import PageTable
from twostroke.engine.cache.window_group import WindowGroup

PagePlace = tuple[int, int, int]
"""The place of a page, as (group, index of the page in the prompt, page id)."""


class GraftEnd(Struct, frozen=True):
    """The pages and the slot that `Graft.finish` has reserved. The caller must write their bytes (from a disk) at once,
    before any other use of the caches. pages: pages of groups with a window. slot: the slot for the state; None when no
    state is to be written."""

    pages: tuple[PagePlace, ...] = ()
    slot: int | None = None


class Graft:
    """Puts one prompt's pages from outside (such as a disk) into the caches. keys: the tokens of the prompt, with the
    key of a tile at each position of an image row. most: the number of full pages that are wanted. at: how many of them
    are cached by now in the groups without a window."""

    def __init__(self, cache: CacheManager, salt: str, keys: Sequence[int], most: int) -> None:
        self._cache, self.salt, self.keys, self.most = cache, salt, keys, most
        size = cache.page_tokens
        self._pages = [tuple(keys[index * size : (index + 1) * size]) for index in range(most)]
        stays = {number: group for number, group in enumerate(cache.groups) if not group.window}
        paths = {number: group.tree.match(salt, keys, most) for number, group in stays.items()}
        self.at = min(map(len, paths.values()), default=most)
        self._tables = {number: stays[number].open(salt, path[: self.at]) for number, path in paths.items()}
        self._staying = tuple(self._tables)
        cache.grafts.append(self)

    @property
    def tables(self) -> Mapping[int, PageTable]:
        """The page tables of the pages that this object holds until the prompt is queued, by the number of the cache
        group."""
        return self._tables

    def reserve(self, count: int) -> list[PagePlace] | None:
        """Allocates the prompt's next `count` pages in each group without a window, and returns their places; the
        caller writes their bytes. Returns None, with nothing changed, when there is no room."""
        groups, end = self._cache.groups, self.at + count
        for place, number in enumerate(self._staying):
            if not groups[number].grow(self._tables[number], end):
                for grown in self._staying[:place]:
                    groups[grown].shrink(self._tables[grown], self.at)
                return None
        tables = [(number, self._tables[number].page_ids) for number in self._staying]
        return [(number, index, pages[index]) for index in range(self.at, end) for number, pages in tables]

    def commit(self, count: int) -> None:
        """Put the next `count` reserved pages, which the caller has written, into the prefix tree."""
        for number in self._staying:
            self._cache.groups[number].commit(self._tables[number], self._pages[self.at : self.at + count])
        self.at += count

    def finish(self, windows: Collection[tuple[int, int]], state: bool) -> GraftEnd:
        """Reserve the pages in groups with a window and the slot of the state, as far as there is room. All pages of
        the groups without a window must be in the cache.

        windows: (group, index) of the window pages that can be written now. state: True when the state can be written.
        In a group, a needed page may be neither cached nor in `windows`, because it was evicted meanwhile, or the pool
        may have too few pages. Then no sequence can go on from the prompt's pages, so the result has no slot and no
        pages of this group and the groups after it.
        """
        places: list[PagePlace] = []
        for number, group in enumerate(self._cache.groups):
            if isinstance(group, WindowGroup):
                own = {index for other, index in windows if other == number}
                found = group.last_window(self.salt, self._pages, own)
                if found is None:
                    return GraftEnd(tuple(places))
                self._tables[number], missing = found
                places += [(number, index, found[0].page_ids[index]) for index in missing]
        states = self._cache.states
        slot = None if states is None or not state else states.snapshot_for(self.salt, self._pages)
        return GraftEnd(tuple(places), slot)

    def close(self) -> None:
        """Release all pages, which stay in the cache if they were committed. Closing twice changes nothing."""
        if self in self._cache.grafts:
            self._cache.grafts.remove(self)
            for number, table in self._tables.items():
                self._cache.groups[number].close(table)
