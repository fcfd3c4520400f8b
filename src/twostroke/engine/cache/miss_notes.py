"""Why pages are missing from the prefix tree: which pages were evicted, and where a prompt departs from the cached
ones."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence

from twostroke.engine.cache.evictions import Evictions
from twostroke.engine.cache.prefix_tree import Node, PrefixTree, root_path
from twostroke.types.recorded.prefix import MissReason, PrefixMiss

COMPARED_SIBLINGS = 256
"""At most this many of a page's successors, the latest, are compared with a prompt. The comparison finds the first
token in which the prompt differs."""


class MissNotes:
    """Notes which pages the prefix tree evicted, and explains why a prompt's pages are missing. Satisfies
    `prefix_tree.TreeWatch`."""

    def __init__(self, num_pages: int) -> None:
        self._evicted = Evictions(num_pages)
        self._contents: dict[int, int] = {}  # hash of a node's tokens -> number of such nodes anywhere in the tree

    def inserted(self, parent: Node, child: Node) -> None:
        content = child.content = hash(child.tokens)
        child.path = hash((parent.path, content))
        self._contents[content] = self._contents.get(content, 0) + 1

    def evicted(self, node: Node) -> None:
        self._evicted.add(node.path)
        left = self._contents.pop(node.content) - 1
        if left:
            self._contents[node.content] = left

    def miss(
        self, tree: PrefixTree, salt: str, tokens: Sequence[int], matched: Sequence[Node], max_pages: int
    ) -> PrefixMiss | None:
        """Returns why only the nodes `matched`, and no more of these tokens, were found. Returns None when no more
        could have been found. max_pages: the number of full pages of the tokens."""
        size, found = tree.page_tokens, len(matched)
        if found >= max_pages:
            return None if found else PrefixMiss(MissReason.SHORT, 0)
        spared = len(tokens) - 1 - found * size  # an upper bound: the last token is always computed
        pages = list(tree.pages(tokens[found * size : max_pages * size]))
        parent = matched[-1] if matched else tree.known_root(salt)
        gone = self._count_evicted(parent.path if parent is not None else root_path(salt), pages)
        if gone:
            return PrefixMiss(MissReason.EVICTED, found * size, min(gone * size, spared))
        if parent is None or not (parent.children or matched):
            return PrefixMiss(MissReason.EMPTY, 0)
        position, near = self._departure(parent, pages)
        lost = _also_cached(near, pages[1:]) if near is not None else 0
        # When the first token of the page differs and no later page is cached, there was nothing to find.
        lost_pages = lost + 1 if position or lost else 0
        return PrefixMiss(MissReason.DIFFERS, found * size + position, min(lost_pages * size, spared))

    def _count_evicted(self, path: int, pages: Sequence[tuple[int, ...]]) -> int:
        """Returns how many of these pages, from the first on, were cached and have been evicted."""
        for count, page in enumerate(pages):
            path = hash((path, hash(page)))
            if path not in self._evicted:
                return count
        return len(pages)

    def _departure(self, parent: Node, pages: Sequence[tuple[int, ...]]) -> tuple[int, Node | None]:
        """Finds, among the cached pages after `parent`, the one that is most similar to the prompt's next page,
        pages[0]. Returns the number of equal tokens at the beginning of both, and the cached page's node.

        Pages are similar when they begin with the same token. When none does, but the prompt's page after the next is
        cached anywhere, all pages after `parent` are compared. Returns (0, None) when nothing similar is cached.
        """
        page, first = pages[0], pages[0][0]
        alike = [tokens for tokens in _latest(parent) if tokens[0] == first]
        if not alike:
            if len(pages) == 1 or hash(pages[1]) not in self._contents:
                return 0, None
            alike = list(_latest(parent))
            if not alike:
                return 0, None
        near = alike[0]
        best = _likeness(page, near)
        for tokens in alike:
            if tokens[: best[0]] == page[: best[0]] and (likeness := _likeness(page, tokens)) > best:
                best, near = likeness, tokens
        return best[0], parent.children[near]


def _latest(parent: Node) -> Iterator[tuple[int, ...]]:
    """Returns the tokens of the parent's latest successors, latest first."""
    return itertools.islice(reversed(parent.children), COMPARED_SIBLINGS)


def _likeness(page: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int]:
    """Returns (tokens in common before the first that differs, tokens in common) for two different pages."""
    equal = list(map(operator.eq, page, other))
    return equal.index(False), sum(equal)


def _also_cached(node: Node, pages: Sequence[tuple[int, ...]]) -> int:
    """Returns how many of these pages follow `node` in the tree."""
    for count, page in enumerate(pages):
        child = node.children.get(page)
        if child is None:
            return count
        node = child
    return len(pages)
