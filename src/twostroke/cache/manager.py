"""Pages of each running sequence, and what of them is shared.

    [0, shared pages)              owned together with the prefix tree; full; what a page holds never changes again
    [shared pages, last page)      owned by this sequence alone

Knows: the pool, the prefix tree, token ids.
Must not know: queues, budgets, who is preempted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from twostroke.cache.miss_notes import MissNotes
from twostroke.cache.pages import PagePool
from twostroke.cache.prefix_tree import Node, PrefixTree
from twostroke.types.prefix import PrefixMiss


class PageState(enum.IntEnum):
    """OWN: one sequence's, not full yet. KEPT: one sequence's and the prefix tree's. SHARED: several sequences'.
    CACHED: the tree's alone, taken back when needed."""

    FREE = 0
    OWN = 1
    KEPT = 2
    SHARED = 3
    CACHED = 4


@dataclass(slots=True)
class PageTable:
    """page_ids of one sequence in order of position; the first len(nodes) of them are in the tree. filled:
    computed tokens. told: page_ids as they were last told, while they are the same; empty where they are not."""

    salt: str
    page_ids: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    filled_tokens: int = 0
    told: tuple[int, ...] = ()


class CacheManager:
    """All page tables of one engine. on_fresh: see PagePool."""

    def __init__(self, num_pages: int, page_tokens: int, on_fresh: Callable[[int], None] | None = None) -> None:
        self.page_tokens = page_tokens
        self._pool = PagePool(num_pages, on_fresh)
        self._notes: MissNotes | None = MissNotes(num_pages)
        self._tree = PrefixTree(self._pool, page_tokens, self._notes)
        self._tables: dict[str, PageTable] = {}

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self._pool.num_pages

    @property
    def pages_free(self) -> int:
        """Pages that hold nothing."""
        return self._pool.num_free

    @property
    def pages_cached(self) -> int:
        """Pages that only the prefix tree holds: free when needed."""
        return self._tree.num_unshared

    @property
    def pages_used(self) -> int:
        """Pages that sequences hold."""
        return self.num_pages - self.pages_free - self.pages_cached

    @property
    def waste_tokens(self) -> int:
        """Positions of sequences' pages that hold nothing yet."""
        return sum(len(t.page_ids) * self.page_tokens - t.filled_tokens for t in self._tables.values())

    def page_states(self) -> bytes:
        """A PageState for each page. Other threads may ask while this one works: then not all are of one moment."""
        return bytes(map(_page_state, self._pool.counts(), self._tree.holds()))

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold so many positions."""
        return -(-num_tokens // self.page_tokens)

    def pages_of(self, sequence_id: str) -> list[int]:
        """The page table, in order of position; live until the next call."""
        return self._tables[sequence_id].page_ids

    def missing_pages(self, wanted: Iterable[tuple[str, int]]) -> int:
        """wanted: (sequence id, num_tokens). Pages for positions [0, num_tokens) of each that it does not own yet."""
        tables, size, count = self._tables, self.page_tokens, 0
        for sequence_id, num_tokens in wanted:
            missing = -(-num_tokens // size) - len(tables[sequence_id].page_ids)
            if missing > 0:
                count += missing
        return count

    def match(self, salt: str, tokens: Sequence[int]) -> list[Node]:
        """The cached full pages of these tokens."""
        return self._tree.match(salt, tokens, len(tokens) // self.page_tokens)

    def spared_tokens(self, matched: Sequence[Node], num_tokens: int) -> int:
        """Of num_tokens tokens, those that need not be computed where these pages of them were found.

        The last one is, because its logits are needed: into its page once more, by the exactness law the same bits.
        """
        return min(len(matched) * self.page_tokens, num_tokens - 1)

    def miss(self, salt: str, tokens: Sequence[int], matched: Sequence[Node]) -> PrefixMiss | None:
        """Why the tree has no more of these tokens than `matched`; None where it has all that can be shared."""
        if self._notes is None:
            return None
        return self._notes.miss(self._tree, salt, tokens, matched, len(tokens) // self.page_tokens)

    def forget_misses(self) -> None:
        """`miss` will not be asked: nothing is noted for it. Raises ValueError where something was noted already."""
        if self._tree.num_nodes:
            raise ValueError("pages are in the prefix tree already")
        self._notes = self._tree.watch = None

    def pages_available(self, matched: Sequence[Node]) -> int:
        """Pages that could be allocated while the matched ones are held."""
        return self.pages_free + self.pages_cached - self._pool.num_single([node.page_id for node in matched])

    def open(self, sequence_id: str, salt: str, matched: Sequence[Node]) -> int:
        """Start a page table with the matched pages; returns the tokens they hold. Raises ValueError for a known id."""
        if sequence_id in self._tables:
            raise ValueError(f"sequence {sequence_id!r} has pages already")
        table = PageTable(salt, [self._tree.share(node) for node in matched], list(matched))
        table.filled_tokens = len(matched) * self.page_tokens
        self._tables[sequence_id] = table
        return table.filled_tokens

    def reserve(self, sequence_id: str, num_tokens: int) -> tuple[int, ...] | None:
        """Own pages for positions [0, num_tokens), as `grow`, and say which; None where there are not enough.

        The same object as long as they are the same pages.
        """
        table = self._tables[sequence_id]
        needed = -(-num_tokens // self.page_tokens)
        told = table.told
        if len(told) == needed:
            return told
        if not self.grow(sequence_id, num_tokens):
            return None
        told = table.told = tuple(table.page_ids[:needed])
        return told

    def grow(self, sequence_id: str, num_tokens: int) -> bool:
        """Own pages for positions [0, num_tokens); False, with nothing changed, where there are not enough."""
        table = self._tables[sequence_id]
        missing = -(-num_tokens // self.page_tokens) - len(table.page_ids)
        if missing <= 0:
            return True
        added: list[int] = []
        while len(added) < missing:
            page_id = self._take_page()
            if page_id is None:
                for other in reversed(added):
                    self._pool.release(other)
                return False
            added.append(page_id)
        table.page_ids += added
        return True

    def commit(self, sequence_id: str, computed_tokens: int, known_tokens: Sequence[int]) -> None:
        """Positions [0, computed_tokens) are filled: put newly full pages into the prefix tree.

        Where the tree has a page for the same tokens, this sequence's copy, equal bit for bit by the exactness law, is
        given back and that page is used from now on.
        """
        table = self._tables[sequence_id]
        table.filled_tokens = computed_tokens
        nodes, size = table.nodes, self.page_tokens
        begin, end = len(nodes), computed_tokens // size
        if begin >= end:
            return
        tree, page_ids = self._tree, table.page_ids
        node = nodes[-1] if nodes else tree.root(table.salt)
        for index, tokens in enumerate(tree.pages(known_tokens[begin * size : end * size]), begin):
            own = page_ids[index]
            node = tree.insert(node, tokens, own)
            if node.page_id != own:
                page_ids[index] = tree.share(node)
                table.told = ()
                self._pool.release(own)
            nodes.append(node)

    def close(self, sequence_id: str) -> None:
        """Give all pages back; those in the tree stay cached. An unknown id changes nothing."""
        table = self._tables.pop(sequence_id, None)
        if table is None:
            return
        for page_id in table.page_ids[len(table.nodes) :]:
            self._pool.release(page_id)
        # Deepest first, so that leaves are the least recently used of one sequence.
        for node in reversed(table.nodes):
            self._tree.give_back(node)

    def drop_cached(self) -> None:
        """Forget every prefix that no sequence uses."""
        while (page_id := self._tree.evict_one()) is not None:
            self._pool.release(page_id)

    def check(self) -> None:
        """Raise ValueError where an invariant is broken (for tests; walks everything)."""
        expected = [0] * self.num_pages
        writers: dict[int, str] = {}
        for sequence_id, table in self._tables.items():
            for index, page_id in enumerate(table.page_ids):
                expected[page_id] += 1
                if index >= len(table.nodes) and writers.setdefault(page_id, sequence_id) != sequence_id:
                    raise ValueError(f"page {page_id} has two writers")
        unshared = 0
        for node in self._tree.nodes():
            unshared += expected[node.page_id] == 0
            expected[node.page_id] += 1
            if node.page_id in writers:
                raise ValueError(f"page {node.page_id} is in the tree and still written by {writers[node.page_id]!r}")
        for page_id, count in enumerate(expected):
            if self._pool.count(page_id) != count:
                raise ValueError(f"page {page_id} counts {self._pool.count(page_id)} owners and has {count}")
        if unshared != self._tree.num_unshared:
            raise ValueError(f"the tree counts {self._tree.num_unshared} unshared pages and has {unshared}")
        if self.pages_free != expected.count(0):
            raise ValueError("the free list does not hold the pages without owners")

    def _take_page(self) -> int | None:
        page_id = self._pool.allocate()
        return self._tree.evict_one() if page_id is None else page_id


def _page_state(owners: int, in_tree: int) -> PageState:
    sequences = owners - in_tree
    if sequences <= 0:
        return PageState.CACHED if owners else PageState.FREE
    if sequences > 1:
        return PageState.SHARED
    return PageState.KEPT if in_tree else PageState.OWN
