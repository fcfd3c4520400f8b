"""The pages and slots that each running sequence holds in every cache group, and which of them are shared.

A model's caches fall into groups (`program.cache_groups`): pages that stay until their sequence ends (full attention),
pages that are given back when a window has passed, and slots of states. A sequence has a page table in each page group,
with an entry for each page index, and one slot where there are states. Groups have pools and prefix trees of their own.
A prefix is usable when every group can go on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat

from twostroke.engine.cache.holdings import NOTHING_CACHED, Closing, HeldTables, Prefix, SequenceCache, Tables
from twostroke.engine.cache.miss_notes import MissNotes
from twostroke.engine.cache.page_group import UNBOUNDED, PageGroup, PageState, PageTable, never
from twostroke.engine.cache.prefix_tree import Node
from twostroke.engine.cache.state_group import StateGroup
from twostroke.engine.cache.window_group import WindowGroup
from twostroke.types.cache_pools import CachePools
from twostroke.types.recorded.prefix import MissReason, PrefixMiss

__all__ = ["NOTHING_CACHED", "CacheManager", "PageState", "Prefix"]

class CacheManager:
    """All caches of one engine. pools: the sizes of the pools. A single number is the number of pages of the only
    group, which has no window.

    on_fresh: called with the id of a page of the first group when the page is taken for the first time. shares: False
    when no sequence can go on from another's beginning; then nothing is kept of a sequence that has ended. closing:
    called before a sequence gives its pages back; it may be set before the first sequence. grafts: objects that hold
    pages while they bring a prompt's pages from outside (`Graft`).
    """

    def __init__(
        self,
        pools: CachePools | int,
        page_tokens: int,
        on_fresh: Callable[[int], None] | None = None,
        *,
        shares: bool = True,
        is_short: Callable[[], bool] = never,
    ) -> None:
        sizes = CachePools.full(pools) if isinstance(pools, int) else pools
        self.page_tokens = page_tokens
        self.groups: tuple[PageGroup, ...] = tuple(
            WindowGroup(size.num_pages, page_tokens, size.window, sizes.chunk_tokens, told, is_short)
            if size.window
            else PageGroup(size.num_pages, page_tokens, told, is_short)
            for told, size in zip(chain([on_fresh], repeat(None)), sizes.pages, strict=False)
        )
        self.states = StateGroup(sizes.state_slots, page_tokens) if sizes.state_slots else None
        if not self.groups and self.states is None:
            raise ValueError("a cache needs pages or slots")
        self._notes: MissNotes | None = None
        self._shares = shares
        if self.groups and shares:
            self._notes = MissNotes(self.groups[0].num_pages)
            self.groups[0].watch(self._notes)
        self._holdings: dict[str, SequenceCache] = {}
        self.closing: Closing | None = None
        self.grafts: list[HeldTables] = []
        self._page_copies: list[tuple[int, int, int]] = []

    @property
    def num_pages(self) -> int:
        """The number of pages of all pools."""
        return sum(group.num_pages for group in self.groups)

    @property
    def pages_free(self) -> int:
        """The number of free pages in all groups; pages that only the prefix trees hold are not free."""
        return sum(group.pool.num_free for group in self.groups)

    @property
    def pages_cached(self) -> int:
        """The number of pages that only a prefix tree holds: they are free when needed."""
        return sum(group.tree.num_unshared for group in self.groups)

    @property
    def pages_used(self) -> int:
        """The number of pages that sequences hold."""
        return self.num_pages - self.pages_free - self.pages_cached

    @property
    def pages_left(self) -> int:
        """The number of pages that can still be allocated, free or evictable, in the group that has the fewest."""
        return min((group.pages_left for group in self.groups), default=UNBOUNDED)

    @property
    def pages_stay(self) -> bool:
        """True when a sequence gives nothing back before it ends, because there are neither windows nor states."""
        return self.states is None and not any(group.window for group in self.groups)

    @property
    def most_positions(self) -> int:
        """The most positions that one sequence can have. Windows and states set no limit."""
        return min((g.num_pages * g.page_tokens for g in self.groups if not g.window), default=UNBOUNDED)

    @property
    def chunk_tokens(self) -> int:
        """The most positions of one sequence that a step may compute: a window's pool must hold them and the window."""
        return min((group.chunk_tokens for group in self.groups), default=UNBOUNDED)

    @property
    def waste_tokens(self) -> int:
        """The number of positions of sequences' pages that hold nothing yet, or a copy of another sequence's positions.
        """
        size, holdings = self.page_tokens, self._holdings.values()
        return sum(len(h.tables[0].page_ids) * size - h.filled_tokens + h.copied_tokens for h in holdings if h.tables)

    def page_states(self) -> bytes:
        """Returns a PageState (free, or by whom it is held) for each page, group by group. Other threads may call it
        while this thread works; the states may then be of slightly different times."""
        return b"".join(group.page_states() for group in self.groups)

    def pages_for(self, num_tokens: int) -> int:
        """Returns the number of pages that `num_tokens` positions take."""
        return -(-num_tokens // self.page_tokens)

    def pages_of(self, sequence_id: str) -> list[int]:
        """Returns the first group's page table, in order of position. It is the cache's own list, which changes at the
        next call."""
        return self._holdings[sequence_id].tables[0].page_ids

    def slot_of(self, sequence_id: str) -> int:
        """Returns the slot of the sequence's states; -1 for a model without states."""
        state = self._holdings[sequence_id].state
        return -1 if state is None else state.slot

    def missing_pages(self, wanted: Iterable[tuple[str, int]]) -> list[int]:
        """Returns, for each group, how many more pages the sequences need until each has computed its num_tokens
        tokens. wanted: pairs (sequence id, num_tokens)."""
        holdings, size = self._holdings, self.page_tokens
        listed = [(holdings[sequence_id].tables, -(-num_tokens // size)) for sequence_id, num_tokens in wanted]
        return [_missing(index, group.most_held, listed) for index, group in enumerate(self.groups)]

    def match(self, salt: str, tokens: Sequence[int]) -> Prefix:
        """Returns the cached beginning of these tokens, in full pages."""
        if not self._shares:
            return NOTHING_CACHED
        most, num_tokens = len(tokens) // self.page_tokens, len(tokens)
        paths: list[Sequence[Node]] = [group.tree.match(salt, tokens, most) for group in self.groups]
        if self.states is not None:
            paths.append(self.states.tree.match(salt, tokens, most))
        lengths = list(map(len, paths))
        num_pages, before = min(lengths), -1
        while num_pages != before:  # a group that cannot continue from a page shortens the paths of the others
            before = num_pages
            for group, path in zip(self.groups, paths, strict=False):
                num_pages = group.usable(path, num_pages, num_tokens)
            if self.states is not None:
                num_pages = self.states.usable(paths[-1], num_pages, num_tokens)
        points = () if self.states is None else self.states.points(num_tokens, num_pages, max(lengths))
        return Prefix(num_pages, tuple(paths), points)

    def extend(self, paths: Sequence[list[Node]], salt: str, tokens: Sequence[int], max_pages: int) -> int:
        """Adds the pages that were cached since an earlier `match` to its paths, one path for each page group. Returns
        the number of pages that all paths have. Use it only where `pages_stay` is True."""
        return min(g.tree.extend(path, salt, tokens, max_pages) for g, path in zip(self.groups, paths, strict=True))

    def most_shared_pages(self, num_tokens: int) -> int:
        """Returns the most full pages of this many tokens that a sequence can take from the cache. The last token is
        always computed again. States cannot go back by one token, so with states a page that ends with the last token
        is not counted."""
        return (num_tokens if self.states is None else num_tokens - 1) // self.page_tokens

    def spared_tokens(self, matched: Prefix, num_tokens: int) -> int:
        """Returns how many of num_tokens tokens need not be computed when the pages in `matched` were found.

        The last token is always computed, because its logits are needed. It is written into its page a second time,
        with the same bits by the exactness law.
        """
        return min(len(matched) * self.page_tokens, num_tokens - 1)

    def miss(self, salt: str, tokens: Sequence[int], matched: Prefix) -> PrefixMiss | None:
        """Returns why only the pages in `matched`, and not more of these tokens, were found in the cache. Returns None
        when no more of them could have been found."""
        if self._notes is None:
            return None
        size, most, found = self.page_tokens, len(tokens) // self.page_tokens, len(matched)
        path = matched.paths[0] if matched.paths else []
        last = len(tokens) - 1
        shared = min(len(path) * size, last if self.states is None else last // size * size)
        if shared > found * size:  # the first group could continue from more pages, but another group could not
            reason = MissReason.EVICTED if self.states is None else MissReason.STATE
            return PrefixMiss(reason, found * size, shared - found * size)
        return self._notes.miss(self.groups[0].tree, salt, tokens, path, most)

    def forget_misses(self) -> None:
        """Stops the notes of evictions that `miss` needs; for caches where nobody calls `miss`. Raises ValueError when
        pages are in the prefix tree already."""
        if any(group.tree.num_nodes for group in self.groups):
            raise ValueError("pages are in the prefix tree already")
        self._notes = None
        for group in self.groups:
            group.watch(None)

    def fits(self, num_tokens: int, matched: Prefix, promised: Sequence[int]) -> bool:
        """Returns True when each group has enough pages for a new sequence of num_tokens tokens, and a slot for its
        state is free. promised: for each group, the number of pages that are kept for other sequences. matched: the
        cached beginning of the new sequence."""
        num_pages, found = -(-num_tokens // self.page_tokens), len(matched)
        for index, group in enumerate(self.groups):
            path = matched.paths[index][:found] if found else ()
            taken = min(promised[index], group.num_pages)
            if group.needed(path, num_pages) + taken > group.available(path):
                return False
        return self.states is None or self.states.slots_left > 0

    def open(self, sequence_id: str, salt: str, matched: Prefix) -> int:
        """Open page tables that begin with the matched pages, and return the number of tokens in these pages. Raises
        ValueError for a known id."""
        if sequence_id in self._holdings:
            raise ValueError(f"sequence {sequence_id!r} has pages already")
        found = len(matched)
        paths = [path[:found] for path in matched.paths] if found else [()] * (len(self.groups) + 1)
        state = None if self.states is None else self.states.open(salt, paths[-1], matched.points)
        tables = tuple(group.open(salt, path) for group, path in zip(self.groups, paths, strict=False))
        filled = found * self.page_tokens
        self._holdings[sequence_id] = SequenceCache(salt, tables, state, found, filled)
        return filled

    def fork(self, source_id: str, sequence_id: str) -> bool:
        """Make a new sequence that has computed what `source_id` has. Full pages are shared; the last page and the
        state are copied before the next step (`take_page_copies`, `take_copies`).

        Returns False, with nothing changed, when there is no page or no slot for a copy. Raises ValueError for a known
        id.
        """
        if sequence_id in self._holdings:
            raise ValueError(f"sequence {sequence_id!r} has pages already")
        source = self._holdings[source_id]
        full, filled = source.full_pages, source.filled_tokens
        needed = -(-filled // self.page_tokens)
        tables = tuple(group.fork(table) for group, table in zip(self.groups, source.tables, strict=True))
        made = all(group.grow(table, needed) for group, table in zip(self.groups, tables, strict=True))
        state = None
        if made and self.states is not None and source.state is not None:
            state = self.states.fork(source.state)
        if not made or (state is None and self.states is not None):
            for group, table in zip(self.groups, tables, strict=True):
                group.close(table)
            return False
        for index, (table, copy) in enumerate(zip(source.tables, tables, strict=True)):
            pairs = zip(table.page_ids[full:needed], copy.page_ids[full:needed], strict=True)
            self._page_copies += [(index, own, other) for own, other in pairs]
        copied_tokens = filled - full * self.page_tokens
        self._holdings[sequence_id] = SequenceCache(source.salt, tables, state, full, filled, copied_tokens)
        return True

    def reserve(self, sequence_id: str, num_tokens: int, left: int = 0) -> Tables | None:
        """Allocates pages for positions [0, num_tokens), as `grow` does, and returns them as one table for each group.
        Returns None when there are not enough pages. With `left`, it also returns None, without allocating, when at
        most `left` pages could be allocated. In a window's table, pages before the window are -1.

        Returns the same object as before while the pages have not changed.
        """
        holding = self._holdings[sequence_id]
        needed = -(-num_tokens // self.page_tokens)
        if holding.planned_pages == needed:
            return holding.planned
        if (left and self.pages_left <= left) or not self.grow(sequence_id, num_tokens):
            return None
        holding.planned_pages = needed
        holding.planned = planned = tuple([tuple(table.page_ids[:needed]) for table in holding.tables])
        return planned

    def grow(self, sequence_id: str, num_tokens: int) -> bool:
        """Own pages for positions [0, num_tokens). Returns False, with nothing changed, when there are not enough
        pages."""
        tables = self._holdings[sequence_id].tables
        needed = -(-num_tokens // self.page_tokens)
        if not tables or needed <= len(tables[0].page_ids):
            return True
        before = len(tables[0].page_ids)
        for index, (group, table) in enumerate(zip(self.groups, tables, strict=True)):
            if not group.grow(table, needed):
                for other in range(index):
                    self.groups[other].shrink(tables[other], before)
                return False
        return True

    def hold_state(self, sequence_id: str) -> bool:
        """Keep a copy of the sequence's state as it is before the next step, until `settle_state` or the sequence's
        end. Returns False when there is no slot for the copy; True for a model without states."""
        state = self._holdings[sequence_id].state
        return state is None or self.states is None or self.states.hold(state)

    def settle_state(self, sequence_id: str, right: bool) -> None:
        """Notes that a step after `hold_state` was run. right: True keeps the state after the step, because all guesses
        in it were right. False restores the copy of the state from before the step."""
        state = self._holdings[sequence_id].state
        if state is None or self.states is None:
            return
        if right:
            self.states.go_on(state)
        else:
            self.states.go_back(state)

    def truncate(self, sequence_id: str, num_tokens: int) -> None:
        """Forget the positions from num_tokens on, and give back the pages that hold no other positions.

        These positions must not have been committed.
        """
        holding = self._holdings[sequence_id]
        needed = max(holding.full_pages, -(-num_tokens // self.page_tokens))
        for group, table in zip(self.groups, holding.tables, strict=True):
            if needed < len(table.page_ids):
                group.shrink(table, needed)
                holding.planned_pages = -1

    def commit(self, sequence_id: str, computed_tokens: int, known_tokens: Sequence[int]) -> None:
        """Note that positions [0, computed_tokens) are filled. Puts newly full pages into the prefix trees, releases
        pages that have left a window, and takes a snapshot of the state when a page ends at computed_tokens."""
        holding = self._holdings[sequence_id]
        holding.filled_tokens = computed_tokens
        size, begin = self.page_tokens, holding.full_pages
        end = computed_tokens // size
        if begin >= end or not self._shares:
            return
        holding.full_pages = end
        tokens = known_tokens[begin * size : end * size]
        for group, table in zip(self.groups, holding.tables, strict=True):
            if group.commit(table, group.tree.pages(tokens)):
                holding.planned_pages = -1
        if holding.state is not None and self.states is not None:
            self.states.commit(holding.state, computed_tokens, known_tokens)

    def close(self, sequence_id: str) -> None:
        """Give back everything that a sequence holds; what is in the trees stays cached. An unknown id changes nothing.
        """
        holding = self._holdings.pop(sequence_id, None)
        if holding is None:
            return
        if self.closing is not None and holding.full_pages:
            self.closing(sequence_id, holding)
        for group, table in zip(self.groups, holding.tables, strict=True):
            group.close(table)
        if holding.state is not None and self.states is not None:
            self.states.close(holding.state)

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Returns the copies of states that the next plan must make before its step, in order: see `Plan.state_copies`.
        """
        return () if self.states is None else self.states.take_copies()

    def take_page_copies(self) -> tuple[tuple[int, int, int], ...]:
        """Returns the copies of pages that the next plan must make before its step, in order: see `Plan.page_copies`.
        """
        copies, self._page_copies = tuple(self._page_copies), []
        return copies

    def settle_copies(self, failed: bool) -> None:
        """Notes that the plan with the latest copies of states was run. failed: True when some of these copies may be
        missing."""
        if self.states is not None:
            self.states.settle_copies(failed)

    def drop_cached(self) -> None:
        """Forget every prefix that no sequence uses."""
        for group in self.groups:
            group.drop_cached()
        if self.states is not None:
            self.states.drop_cached()

    def check(self) -> None:
        """Raise ValueError when an invariant is broken (for tests; walks everything)."""
        holdings = self._holdings.items()
        for index, group in enumerate(self.groups):
            tables = [(sequence_id, holding.tables[index]) for sequence_id, holding in holdings]
            tables += [(f"graft {n}", each.tables[index]) for n, each in enumerate(self.grafts) if index in each.tables]
            group.check(tables)
        for sequence_id, holding in holdings:
            if len({len(table.page_ids) for table in holding.tables}) > 1:
                raise ValueError(f"the tables of {sequence_id!r} have different lengths")
        if self.states is not None:
            self.states.check((name, holding.state) for name, holding in holdings if holding.state is not None)


def _missing(index: int, most_held: int, wanted: Iterable[tuple[tuple[PageTable, ...], int]]) -> int:
    count = 0
    for tables, num_pages in wanted:
        table = tables[index]
        owned = len(table.page_ids)
        if num_pages > owned:
            count += min(num_pages - owned, most_held - (owned - table.first_held))
    return count
