"""One group's pages: its pool, its prefix tree, and its page table of each sequence. The pages of a table:

    [0, len(nodes))                 owned together with the prefix tree; full; their content never changes again
    [len(nodes), len(page_ids))     owned by this sequence alone
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

from twostroke.engine.cache.pages import PagePool
from twostroke.engine.cache.prefix_tree import Node, PrefixTree, TreeWatch

UNBOUNDED = 1 << 60

GIVEN_BACK = -1
"""The entry of a page table for a page that was given back because it is before the window."""


def never() -> bool:
    """Returns False: memory is never short."""
    return False


class PageState(enum.IntEnum):
    """The owners of a page. OWN: one sequence, and the page is not full yet. KEPT: one sequence and the prefix tree.
    SHARED: several sequences. CACHED: the tree alone, which evicts the page when needed."""

    FREE = 0
    OWN = 1
    KEPT = 2
    SHARED = 3
    CACHED = 4


class PageTable(Struct):
    """The pages of one sequence in one cache group. page_ids: its pages in order of position; the first len(nodes) of
    them are in the tree.

    first_held: the index of the first page that is held. Earlier pages were given back, or never taken, because they
    are before the window.
    """

    salt: str
    page_ids: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    first_held: int = 0


class PageGroup:
    """The pages of one cache group for layers without a window: a sequence keeps its pages until it ends. WindowGroup
    is the kind for layers with a window. on_fresh: called with a page's id when the page is taken for the first time.
    is_short: tells whether other programs need the memory of pages that were never taken."""

    window = 0
    most_held = chunk_tokens = UNBOUNDED

    def __init__(
        self,
        num_pages: int,
        page_tokens: int,
        on_fresh: Callable[[int], None] | None = None,
        is_short: Callable[[], bool] = never,
    ) -> None:
        self.page_tokens = page_tokens
        self._is_short = is_short
        self.pool = PagePool(num_pages, on_fresh)
        self.tree = self._make_tree()

    def _make_tree(self) -> PrefixTree:
        return PrefixTree(self.pool, self.page_tokens)

    @property
    def num_pages(self) -> int:
        """The number of pages of the pool."""
        return self.pool.num_pages

    @property
    def pages_left(self) -> int:
        """The number of pages that could be allocated: free ones, and those that only the tree owns."""
        return self.pool.num_free + self.tree.num_unshared

    def page_states(self) -> bytes:
        """Returns for each page whether it is free, or whether a sequence, several sequences or only the prefix tree
        hold it (PageState)."""
        return bytes(map(_page_state, self.pool.counts(), self.tree.holds()))

    def watch(self, watch: TreeWatch | None) -> None:
        """Make `watch` the listener that is called at each change of the tree."""
        self.tree.watch = watch

    def usable(self, path: Sequence[Node], num_pages: int, num_tokens: int) -> int:
        """Returns from how many of the first num_pages nodes of `path` a sequence can go on. num_tokens: the length of
        its known text, in tokens."""
        return num_pages

    def first_needed(self, num_pages: int) -> int:
        """Returns the index of the first page that a sequence still reads when it has num_pages full pages."""
        return 0

    def open(self, salt: str, matched: Sequence[Node]) -> PageTable:
        """Returns a table that begins with the matched pages."""
        first = self.first_needed(len(matched))
        pages = [GIVEN_BACK] * first + [self.tree.share(node) for node in matched[first:]]
        return PageTable(salt, pages, list(matched), first)

    def fork(self, table: PageTable) -> PageTable:
        """Returns a new table with the full pages of `table`. Both tables own these pages from now on."""
        nodes, first = table.nodes, table.first_held
        pages = [GIVEN_BACK] * first + [self.tree.share(node) for node in nodes[first:]]
        return PageTable(table.salt, pages, list(nodes), first)

    def needed(self, matched: Sequence[Node], num_pages: int) -> int:
        """Returns how many pages a new sequence needs in addition to the matched ones, until it has num_pages."""
        held = len(matched) - self.first_needed(len(matched))
        return min(num_pages - len(matched), self.most_held - held)

    def available(self, matched: Sequence[Node]) -> int:
        """Returns how many pages could be allocated if a sequence began with these cached pages. A cached page that
        only this sequence would hold cannot be evicted then, so it is not counted."""
        held = matched[self.first_needed(len(matched)) :]
        return self.pages_left - self.pool.num_single([node.page_id for node in held])

    def grow(self, table: PageTable, num_pages: int) -> bool:
        """Extend the table to num_pages pages. Returns False, with nothing changed, when there are not enough."""
        added = self.take(num_pages - len(table.page_ids))
        if added is None:
            return False
        table.page_ids += added
        return True

    def take(self, count: int) -> list[int] | None:
        """Returns `count` pages that nobody uses, now the caller's; None, with nothing changed, when there are not
        enough."""
        added: list[int] = []
        while len(added) < count:
            page_id = self._unused()
            if page_id is None:
                for other in reversed(added):
                    self.pool.release(other)
                return None
            added.append(page_id)
        return added

    def _unused(self) -> int | None:
        """Returns a page that nobody uses, now the caller's; None where there is none. Pages that were used before come
        first, then new pages, then the page of the oldest cached prefix. Where memory is short, this prefix comes
        before new pages."""
        page_id = self.tree.evict_one() if self.pool.next_is_new and self._is_short() else None
        if page_id is None:
            page_id = self.pool.allocate()
        return self.tree.evict_one() if page_id is None else page_id

    def shrink(self, table: PageTable, num_pages: int) -> None:
        """Gives back the last pages of a sequence, beyond its first `num_pages`. The caller knows that no other
        sequence and no prefix tree holds them."""
        while len(table.page_ids) > num_pages:
            self.pool.release(table.page_ids.pop())

    def commit(self, table: PageTable, pages: Iterable[tuple[int, ...]]) -> bool:
        """Put the next pages, which are full, into the prefix tree. pages: the tokens of each page.

        When the tree has a page for the same tokens, this sequence's copy is released, and the tree's page is used from
        now on. Both are equal bit for bit by the exactness law. Returns True when the table has changed.
        """
        tree, page_ids, nodes = self.tree, table.page_ids, table.nodes
        node = nodes[-1] if nodes else tree.root(table.salt)
        changed = False
        for index, tokens in enumerate(pages, len(nodes)):
            own = page_ids[index]
            node = tree.insert(node, tokens, own)
            if node.page_id != own:
                page_ids[index] = tree.share(node)
                changed = True
                self.pool.release(own)
            nodes.append(node)
        return changed

    def close(self, table: PageTable) -> None:
        """Give all pages of the table back; those in the tree stay cached."""
        for page_id in table.page_ids[len(table.nodes) :]:
            self.pool.release(page_id)
        # The deepest node is given back first, so that the leaves of a sequence are its least recently used nodes.
        for node in reversed(table.nodes[table.first_held :]):
            self.tree.give_back(node)

    def drop_cached(self) -> None:
        """Forget every prefix that no sequence uses."""
        while (page_id := self.tree.evict_one()) is not None:
            self.pool.release(page_id)

    def check(self, tables: Iterable[tuple[str, PageTable]]) -> None:
        """Raise ValueError when an invariant is broken (for tests; walks everything). tables: pairs of a sequence's id
        and its page table."""
        expected = [0] * self.num_pages
        writers: dict[int, str] = {}
        for sequence_id, table in tables:
            self._check_table(sequence_id, table)
            for index, page_id in enumerate(table.page_ids[table.first_held :], table.first_held):
                expected[page_id] += 1
                if index >= len(table.nodes) and writers.setdefault(page_id, sequence_id) != sequence_id:
                    raise ValueError(f"page {page_id} has two writers")
        unshared = 0
        for node in self.tree.nodes():
            if node.page_id < 0:
                continue
            unshared += expected[node.page_id] == 0
            expected[node.page_id] += 1
            if node.page_id in writers:
                raise ValueError(f"page {node.page_id} is in the tree and still written by {writers[node.page_id]!r}")
        for page_id, count in enumerate(expected):
            if self.pool.count(page_id) != count:
                raise ValueError(f"page {page_id} counts {self.pool.count(page_id)} owners and has {count}")
        if unshared != self.tree.num_unshared:
            raise ValueError(f"the tree counts {self.tree.num_unshared} unshared pages and has {unshared}")
        if self.pool.num_free != expected.count(0):
            raise ValueError("the free list does not hold the pages without owners")

    def _check_table(self, sequence_id: str, table: PageTable) -> None:
        given_back = [page_id for page_id in table.page_ids if page_id < 0]
        if len(given_back) != table.first_held or any(page_id >= 0 for page_id in table.page_ids[: table.first_held]):
            raise ValueError(f"{sequence_id!r} holds pages from {table.first_held} on and its table says otherwise")
        for index in range(table.first_held, len(table.nodes)):
            if table.nodes[index].page_id != table.page_ids[index]:
                raise ValueError(f"page {index} of {sequence_id!r} is not the tree's")


def _page_state(owners: int, in_tree: int) -> PageState:
    sequences = owners - in_tree
    if sequences <= 0:
        return PageState.CACHED if owners else PageState.FREE
    if sequences > 1:
        return PageState.SHARED
    return PageState.KEPT if in_tree else PageState.OWN
