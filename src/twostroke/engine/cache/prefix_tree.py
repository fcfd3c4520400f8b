"""Full pages by the tokens they hold: a radix tree with one page of tokens on each edge.

Edges are compared by their exact token ids, so no two prefixes can be taken for each other. Each salt has a root of
its own.
The tree is one owner of each of its pages. A page that has no other owner can be evicted: leaves first, the longest
unused first. A counter of uses decides, not a clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

from twostroke.engine.cache.pages import PagePool

STALE_ENTRIES = 1024
"""The queue of evictable nodes is rebuilt when it has more than two entries for each node and this many in addition."""


class Node:
    """One full page below its parent. page_id: the page; -1 for roots, which alone have a salt. content: a hash of
    `tokens`. path: a hash of all tokens from the root on. The cache's listener uses `content` and `path` to explain why
    a page is missing; pages are never found by them. pins: the number of sequences for which the node must stay in a
    `SparseTree`, even if it holds nothing."""

    __slots__ = ("children", "content", "last_use", "page_id", "parent", "path", "pins", "salt", "tokens")

    def __init__(self, tokens: tuple[int, ...], page_id: int, parent: Node | None, salt: str = "") -> None:
        self.tokens = tokens
        self.page_id = page_id
        self.parent = parent
        self.children: dict[tuple[int, ...], Node] = {}
        self.last_use = 0
        self.content = self.pins = 0
        self.path = 0 if parent is not None else root_path(salt)
        self.salt = salt


class TreeWatch(Protocol):
    """A listener that a PrefixTree calls at each change, to remember what the tree held."""

    def inserted(self, parent: Node, child: Node) -> None:
        """A node was added to the tree."""

    def evicted(self, node: Node) -> None:
        """A leaf was taken out of the tree."""


class PrefixTree:
    """The prefix tree of one cache group; it owns one reference to each of its pages in `pool`. Invariant: a node's
    ancestors have at least as many owners as the node."""

    def __init__(self, pool: PagePool, page_tokens: int, watch: TreeWatch | None = None) -> None:
        self._pool = pool
        self.watch = watch
        self.page_tokens = page_tokens
        self._roots: dict[str, Node] = {}
        self._uses = 0
        # A heap of last uses, each of which belongs to one node. An entry goes stale when its node is used again or
        # evicted. Stale entries are dropped when they are popped, or all at once: a cache that has room for everything
        # never pops, and its heap would grow with each request.
        self._evictable: list[int] = []
        self._by_use: dict[int, Node] = {}
        self._owners = pool.owners
        self._holds = bytearray(pool.num_pages)  # indices are page ids: 1 when the tree owns the page
        self.num_nodes = 0
        self._num_unshared = 0

    @property
    def num_unshared(self) -> int:
        """The number of pages that only the tree owns: all of them can be evicted, one leaf after another."""
        return self._num_unshared

    def holds(self) -> bytes:
        """Returns one byte for each page: 1 when the tree is one of the page's owners."""
        return bytes(self._holds)

    def root(self, salt: str) -> Node:
        """Returns the root of a salt; it is made when there is none."""
        if salt not in self._roots:
            self._roots[salt] = Node((), -1, None, salt)
        return self._roots[salt]

    def known_root(self, salt: str) -> Node | None:
        """Returns the root of a salt; None when the salt was never used."""
        return self._roots.get(salt)

    def match(self, salt: str, tokens: Sequence[int], max_pages: int) -> list[Node]:
        """Returns the nodes of the longest cached prefix of `tokens`, at most max_pages, in order. The pages' reference
        counts stay the same."""
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

    def extend(self, path: list[Node], salt: str, tokens: Sequence[int], max_pages: int) -> int:
        """Bring a path that `match` found earlier up to date, and return its length. Evicted nodes are removed from the
        path, new ones are added.

        The cost depends on what has changed, not on the length of the path. The pages' reference counts stay the same.
        """
        while path and ((parent := path[-1].parent) is None or parent.children.get(path[-1].tokens) is not path[-1]):
            path.pop()  # leaves are evicted first: if the last node is present, all earlier nodes are, too
        node = path[-1] if path else self._roots.get(salt)
        for page in self.pages(tokens[len(path) * self.page_tokens : max_pages * self.page_tokens]):
            node = None if node is None else node.children.get(page)
            if node is None:
                break
            path.append(node)
        return len(path)

    def share(self, node: Node) -> int:
        """Add one owner to the node's page, and return the page id."""
        page_id = node.page_id
        if self._pool.retain(page_id) == 2:
            self._num_unshared -= 1
        return page_id

    def insert(self, parent: Node, tokens: tuple[int, ...], page_id: int) -> Node:
        """Returns the child of `parent` for these tokens. It is the existing child, or a new one that shares the
        ownership of page_id.

        When an existing child has another page, the caller should give its own page back and share the child's page.
        """
        children = parent.children
        child = children.get(tokens) if children else None  # no needless lookup: hashing a page takes time
        if child is None:
            child = children[tokens] = Node(tokens, page_id, parent)
            if self.watch is not None:
                self.watch.inserted(parent, child)
            self._pool.retain(page_id)
            self._holds[page_id] = 1
            self.num_nodes += 1
        return child

    def give_back(self, node: Node) -> None:
        """Remove one owner of the node's page. The page stays in the tree, and is now the most recently used."""
        self._uses += 1
        node.last_use = self._uses
        if self._pool.release(node.page_id) == 1:
            self._num_unshared += 1
            self._offer(node)

    def evict_one(self) -> int | None:
        """Evict the least recently used page that only the tree owns, and return its id. The caller owns the page now.
        Returns None when there is no such page."""
        evictable, by_use, owners = self._evictable, self._by_use, self._owners
        while evictable:
            use = heapq.heappop(evictable)
            node = by_use.pop(use, None)  # the same test as in _evicts, written out
            if node is not None and node.last_use == use and not node.children and owners[node.page_id] == 1:
                self._remove(node)
                return node.page_id
        return None

    def nodes(self) -> Iterator[Node]:
        """Yields every node but the roots, parents first."""
        waiting = list(self._roots.values())
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            if node.parent is not None:
                yield node

    def pages(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yields the full pages of these tokens, in order."""
        return zip(*[iter(tokens)] * self.page_tokens, strict=False)

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
        """Returns True when this entry of the queue is still valid: the node was not used since, and is a leaf whose
        page only the tree owns."""
        return node.last_use == use and not node.children and self._owners[node.page_id] == 1

    def _remove(self, node: Node) -> None:
        """Remove a leaf from the tree. The caller becomes the owner of its page."""
        parent = node.parent
        if self.watch is not None:
            self.watch.evicted(node)
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


def root_path(salt: str) -> int:
    """Returns a hash of the salt. It is the same in every process, unlike the hash of a string."""
    return hash(tuple(salt.encode()))
