"""The pages of layers that see a window: a page is given back when the window has passed it.

A query at position p sees the positions from p - window + 1 on. A page is before the window when no later query sees
any of its positions. It is given back when the next page is full, so a table holds at most one page more than it must.
The tree keeps pages that were given back, while there is room: another request may begin with the same tokens and
depart at any of them. A sequence can go on from a prefix when the pages of the prefix's last window are cached; earlier
pages need not be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

from twostroke.engine.cache.page_group import GIVEN_BACK, PageGroup, PageTable, never
from twostroke.engine.cache.prefix_tree import Node, PrefixTree
from twostroke.engine.cache.sparse_tree import NOTHING, SparseTree
from twostroke.types.cache_pools import window_pages


class WindowGroup(PageGroup):
    """The pages of one cache group for layers with a sliding window (see the module). chunk_tokens: the most positions
    of one sequence that a step may compute; a small pool lowers this number. Raises ValueError when the pool is too
    small for a window and one page."""

    def __init__(
        self,
        num_pages: int,
        page_tokens: int,
        window: int,
        chunk_tokens: int,
        on_fresh: Callable[[int], None] | None = None,
        is_short: Callable[[], bool] = never,
    ) -> None:
        super().__init__(num_pages, page_tokens, on_fresh, is_short)
        self.window = window
        chunk_pages = num_pages - window_pages(window, 0, page_tokens)
        if chunk_pages < 1:
            least = window_pages(window, 1, page_tokens)
            raise ValueError(f"a window of {window} needs a pool of {least} pages, not {num_pages}")
        self.chunk_tokens = min(chunk_tokens, chunk_pages * page_tokens)
        self.most_held = window_pages(window, self.chunk_tokens, page_tokens)

    def _make_tree(self) -> PrefixTree:
        return SparseTree(self.pool, self.page_tokens)

    def first_needed(self, num_pages: int) -> int:
        """Returns the index of the first page that a sequence must hold when its first `num_pages` pages are full. The
        sequence computes the position after these pages next, or their last position again
        (`CacheManager.spared_tokens`). The last full page is always held, because further pages are attached to its
        node in the tree."""
        return max(0, num_pages * self.page_tokens - self.window) // self.page_tokens

    def usable(self, path: Sequence[Node], num_pages: int, num_tokens: int) -> int:
        """Returns how many of the first `num_pages` cached pages on `path` a new sequence can begin with: the most
        after which all pages of the last window are still cached."""
        while num_pages:
            needed = range(num_pages - 1, self.first_needed(num_pages) - 1, -1)
            gap = next((index for index in needed if path[index].page_id < 0), None)
            if gap is None:
                break
            num_pages = gap
        return num_pages

    def commit(self, table: PageTable, pages: Iterable[tuple[int, ...]]) -> bool:
        """Adds newly full pages to the prefix tree, as PageGroup does, and then gives back the pages before the
        window."""
        super().commit(table, pages)
        first = self.first_needed(len(table.nodes))
        for index in range(table.first_held, first):
            table.page_ids[index] = GIVEN_BACK
            self.tree.give_back(table.nodes[index])
        table.first_held = max(first, table.first_held)
        return True

    def last_window(
        self, salt: str, pages: Sequence[tuple[int, ...]], writable: Collection[int]
    ) -> tuple[PageTable, list[int]] | None:
        """Returns the page table of a prompt with these full pages; the table holds only the pages of the last window.
        Also returns the indices of its pages that were not cached: the caller must write them now. Returns None, with
        nothing changed, when the pool has too few pages, or such an index is not in `writable`."""
        first, tree = self.first_needed(len(pages)), self.tree
        found = list(itertools.zip_longest(range(len(pages)), tree.match(salt, _flat(pages), len(pages))))
        nodes = {index: node for index, node in found if index >= first and node is not None and node.page_id >= 0}
        held = {index: tree.share(node) for index, node in nodes.items()}
        missing = [index for index in range(first, len(pages)) if index not in held]
        taken = self.take(len(missing)) if all(index in writable for index in missing) else None
        if taken is None:
            for node in nodes.values():
                tree.give_back(node)
            return None
        held.update(zip(missing, taken, strict=True))
        table = PageTable(salt, [GIVEN_BACK] * first + [held[index] for index in range(first, len(pages))], [], first)
        node = tree.root(salt)
        for index, tokens in enumerate(pages):
            node = tree.insert(node, tokens, NOTHING if index in nodes or index < first else held[index])
            table.nodes.append(node)
        return table, missing


def _flat(pages: Sequence[tuple[int, ...]]) -> list[int]:
    return list(itertools.chain.from_iterable(pages))
