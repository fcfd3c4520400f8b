"""Full pages by the tokens they hold: a radix tree with one page of tokens on each edge.

Edges are compared by their exact token ids, so no two prefixes can be taken for each other. Each salt has a root of
its own.
The tree is one owner of each of its pages; a page that has no other owner can be evicted, leaves first, the longest
unused
first, by a counter of uses (no clock).

Knows: the pool, token ids.
Must not know: requests.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Iterator, Sequence

from twostroke.cache.evictions import Evictions
from twostroke.cache.pages import PagePool
from twostroke.types.prefix import MissReason, PrefixMiss

STALE_ENTRIES = 1024
"""That the queue of evictable nodes may hold, beside two for each node, before it is made anew."""

COMPARED_SIBLINGS = 256
"""Of a page's successors, the latest, when it is asked where a prompt departs from them."""


class Node:
    """One full page below its parent. page_id is -1 for roots, which alone have a salt. content: a hash of tokens, path:
    of all tokens from the root on; for telling why a page is missing, never for finding one."""

    __slots__ = ("children", "content", "last_use", "page_id", "parent", "path", "salt", "tokens")

    def __init__(
        self, tokens: tuple[int, ...], page_id: int, parent: Node | None, content: int, path: int, salt: str = ""
    ) -> None:
        self.tokens = tokens
        self.page_id = page_id
        self.parent = parent
        self.children: dict[tuple[int, ...], Node] = {}
        self.last_use = 0
        self.content = content
        self.path = path
        self.salt = salt


class PrefixTree:
    """Owns references into `pool`. Invariant: a node's ancestors have at least as many owners as the node."""

    def __init__(self, pool: PagePool, page_tokens: int) -> None:
        self._pool = pool
        self._page_tokens = page_tokens
        self._roots: dict[str, Node] = {}
        self._uses = 0
        # A heap of last uses, each of which is one node's: entries go stale when a node is used again or evicted; they
        # are dropped when popped, or all at once: a cache that has room for everything never pops, and would grow with
        # each request.
        self._evictable: list[int] = []
        self._by_use: dict[int, Node] = {}
        self._owners = pool.owners
        self._evicted = Evictions(pool.num_pages)
        self._contents: dict[int, int] = {}  # nodes by the hash of their tokens, wherever they are: how many
        self._holds = bytearray(pool.num_pages)  # by page id: 1 where the tree is an owner
        self.num_nodes = 0
        self._num_unshared = 0

    @property
    def num_unshared(self) -> int:
        """Pages that only the tree owns: all of them can be evicted, one leaf after another."""
        return self._num_unshared

    def holds(self) -> bytes:
        """By page id: 1 where the tree is one of the page's owners."""
        return bytes(self._holds)

    def root(self, salt: str) -> Node:
        """The root of a salt."""
        if salt not in self._roots:
            self._roots[salt] = Node((), -1, None, 0, _root_path(salt), salt)
        return self._roots[salt]

    def match(self, salt: str, tokens: Sequence[int], max_pages: int) -> list[Node]:
        """Nodes of the longest cached prefix of `tokens`, at most max_pages, in order. Nothing is retained."""
        node = self._roots.get(salt)
        found: list[Node] = []
        if node is None:
            return found
        for page in itertools.islice(self.pages(tokens), max_pages):
            node = node.children.get(page)
            if node is None:
                break
            found.append(node)
        return found

    def miss(self, salt: str, tokens: Sequence[int], matched: Sequence[Node], max_pages: int) -> PrefixMiss | None:
        """Why no more than `matched` of these tokens were found; None where that is all there could be."""
        size, found = self._page_tokens, len(matched)
        if found >= max_pages:
            return None if found else PrefixMiss(MissReason.SHORT, 0)
        pages = list(self.pages(tokens[found * size : max_pages * size]))
        parent = matched[-1] if matched else self._roots.get(salt)
        gone = self._count_evicted(parent.path if parent is not None else _root_path(salt), pages)
        if gone:
            return PrefixMiss(MissReason.EVICTED, found * size, gone * size)
        if parent is None or not (parent.children or matched):
            return PrefixMiss(MissReason.EMPTY, 0)
        position, near = self._departure(parent, pages)
        lost = _also_cached(near, pages[1:]) if near is not None else 0
        # Where even the first token of the page differs, and nothing behind it fits, there was nothing to find.
        lost_pages = lost + 1 if position or lost else 0
        return PrefixMiss(MissReason.DIFFERS, found * size + position, lost_pages * size)

    def share(self, node: Node) -> int:
        """One more owner of the node's page; returns the page id."""
        page_id = node.page_id
        if self._pool.retain(page_id) == 2:
            self._num_unshared -= 1
        return page_id

    def insert(self, parent: Node, tokens: tuple[int, ...], page_id: int) -> Node:
        """The child of `parent` for these tokens: the one that is there, or a new one that takes over shared ownership.

        Where one is there with another page, the caller should give its own page back and share that one.
        """
        children = parent.children
        child = children.get(tokens) if children else None  # hashing a page is not free
        if child is None:
            content = hash(tokens)
            child = children[tokens] = Node(tokens, page_id, parent, content, hash((parent.path, content)))
            contents = self._contents
            contents[content] = contents.get(content, 0) + 1
            self._pool.retain(page_id)
            self._holds[page_id] = 1
            self.num_nodes += 1
        return child

    def give_back(self, node: Node) -> None:
        """One owner less of the node's page, which stays in the tree, now the most recently used."""
        self._uses += 1
        node.last_use = self._uses
        if self._pool.release(node.page_id) == 1:
            self._num_unshared += 1
            self._offer(node)

    def evict_one(self) -> int | None:
        """Give up the least recently used page that only the tree owns: now the caller's; None where there is none."""
        evictable, by_use, owners = self._evictable, self._by_use, self._owners
        while evictable:
            use = heapq.heappop(evictable)
            node = by_use.pop(use, None)  # as _evicts
            if node is not None and node.last_use == use and not node.children and owners[node.page_id] == 1:
                self._remove(node)
                return node.page_id
        return None

    def nodes(self) -> Iterator[Node]:
        """Every node but the roots, parents first."""
        waiting = list(self._roots.values())
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            if node.parent is not None:
                yield node

    def _departure(self, parent: Node, pages: Sequence[tuple[int, ...]]) -> tuple[int, Node | None]:
        """(tokens that the first page has in common with the successor most like it, that successor).

        Where nobody has its first token, and nobody anywhere has the second page, it is all one who is most like it.
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

    def pages(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Full pages of these tokens, in order."""
        return zip(*[iter(tokens)] * self._page_tokens, strict=False)

    def _offer(self, node: Node) -> None:
        if not node.children:
            heapq.heappush(self._evictable, node.last_use)
            self._by_use[node.last_use] = node
            if len(self._evictable) > 2 * self.num_nodes + STALE_ENTRIES:
                self._drop_stale()

    def _drop_stale(self) -> None:
        self._by_use = {use: node for use, node in self._by_use.items() if self._evicts(use, node)}
        self._evictable = sorted(self._by_use)

    def _evicts(self, use: int, node: Node) -> bool:
        """False for an entry that is stale. Who was evicted is not in _by_use."""
        return node.last_use == use and not node.children and self._owners[node.page_id] == 1

    def _count_evicted(self, path: int, pages: Sequence[tuple[int, ...]]) -> int:
        """How many of these pages, from the first on, were here and were evicted."""
        for count, page in enumerate(pages):
            path = hash((path, hash(page)))
            if path not in self._evicted:
                return count
        return len(pages)

    def _remove(self, node: Node) -> None:
        """A leaf that alone owns its page, which it owns no longer."""
        parent, contents = node.parent, self._contents
        self._evicted.add(node.path)
        left = contents.pop(node.content) - 1
        if left:
            contents[node.content] = left
        self._holds[node.page_id] = 0
        self.num_nodes -= 1
        self._num_unshared -= 1
        if parent is None:
            return
        children = parent.children
        if len(children) > 1:
            del children[node.tokens]
            return
        children.clear()
        if parent.parent is None:
            del self._roots[parent.salt]
        elif self._owners[parent.page_id] == 1:
            heapq.heappush(self._evictable, parent.last_use)
            self._by_use[parent.last_use] = parent


def _latest(parent: Node) -> Iterator[tuple[int, ...]]:
    """The tokens of its latest successors, latest first."""
    return itertools.islice(reversed(parent.children), COMPARED_SIBLINGS)


def _root_path(salt: str) -> int:
    """The same in every process, as a string's own hash is not."""
    return hash(tuple(salt.encode()))


def _likeness(page: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int]:
    """(tokens in common before the first that differs, tokens in common) of two different pages."""
    equal = list(map(operator.eq, page, other))
    return equal.index(False), sum(equal)


def _also_cached(node: Node, pages: Sequence[tuple[int, ...]]) -> int:
    """How many of these pages follow `node` in the tree."""
    for count, page in enumerate(pages):
        child = node.children.get(page)
        if child is None:
            return count
        node = child
    return len(pages)
