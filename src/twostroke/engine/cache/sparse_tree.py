"""A prefix tree whose nodes may be empty. It holds the pages of a window, or snapshots of states.

The page or slot of any node can be evicted, wherever the node is, the longest unused first. An empty node stays as part
of the path to other nodes. It is removed when no node is below it and no sequence has pinned it. The `page_id` of an
empty node is -1.
"""

from __future__ import annotations

import heapq

from twostroke.engine.cache.prefix_tree import STALE_ENTRIES, Node, PrefixTree

NOTHING = -1


class SparseTree(PrefixTree):
    """A PrefixTree for windows and states, in which a node's ancestors exist but may hold no page."""

    def insert(self, parent: Node, tokens: tuple[int, ...], page_id: int) -> Node:
        """Adds a node for a page or slot, as PrefixTree does. Where the node exists and holds nothing, it takes over
        page_id. page_id: NOTHING for a node that only leads to deeper nodes."""
        child = parent.children.get(tokens)
        if child is None:
            child = parent.children[tokens] = Node(tokens, NOTHING, parent)
            if self.watch is not None:
                self.watch.inserted(parent, child)
            self.num_nodes += 1
        if child.page_id == NOTHING != page_id:
            self._pool.retain(page_id)
            self._holds[page_id] = 1
            child.page_id = page_id
        return child

    def touch(self, node: Node, bonus: int = 0) -> None:
        """Notes that the node's page or slot, which only the tree owns, was used just now. bonus: the page or slot is
        evicted as late as if it were used again after this many further uses of the tree."""
        self._uses += 1
        if self._by_use.get(node.last_use) is node:
            del self._by_use[node.last_use]
        # Two nodes never have the same last use: a bonus could otherwise make them equal.
        use = max(self._uses + bonus, node.last_use)
        while use in self._by_use:
            use += 1
        node.last_use = use
        self._offer(node)

    def give_back(self, node: Node) -> None:
        """Remove one owner of the page or slot that the node holds. It stays in the tree, now as the most recently
        used."""
        if self._pool.release(node.page_id) == 1:
            self._num_unshared += 1
            self.touch(node)

    def evict_one(self) -> int | None:
        """Evict the least recently used page or slot that no sequence holds, and return it; None when there is none."""
        while self._evictable:
            use = heapq.heappop(self._evictable)
            node = self._by_use.pop(use, None)
            if node is not None and self._evicts(use, node):
                return self._take_from(node)
        return None

    def forget(self, node: Node) -> int:
        """Take out the page or slot of a node, which only the tree owns, and return it. The caller owns it now."""
        if self._by_use.get(node.last_use) is node:
            del self._by_use[node.last_use]
        return self._take_from(node)

    def adopt(self, node: Node, page_id: int) -> None:
        """Put a page or slot into an empty node. Only the caller owns it, and the tree takes over this ownership."""
        if node.page_id != NOTHING:
            raise ValueError("the node holds something already")
        node.page_id = page_id
        self._holds[page_id] = 1
        self._num_unshared += 1
        self.touch(node)

    def unpin(self, node: Node) -> None:
        """Decrement the number of sequences that need the node."""
        node.pins -= 1
        self._prune(node)

    def _take_from(self, node: Node) -> int:
        page_id, node.page_id = node.page_id, NOTHING
        self._holds[page_id] = 0
        self._num_unshared -= 1
        self._prune(node)
        return page_id

    def _prune(self, node: Node) -> None:
        """Remove the node and its ancestors, as far as they hold nothing, have no children and are not pinned."""
        while node.page_id == NOTHING and not node.children and not node.pins:
            parent = node.parent
            if parent is None:
                del self._roots[node.salt]
                return
            if self.watch is not None:
                self.watch.evicted(node)
            self.num_nodes -= 1
            del parent.children[node.tokens]
            node = parent

    def _offer(self, node: Node) -> None:
        heapq.heappush(self._evictable, node.last_use)
        self._by_use[node.last_use] = node
        if len(self._evictable) > 2 * self.num_nodes + STALE_ENTRIES:
            self._drop_stale()

    def _evicts(self, use: int, node: Node) -> bool:
        return node.last_use == use and node.page_id != NOTHING and self._owners[node.page_id] == 1
