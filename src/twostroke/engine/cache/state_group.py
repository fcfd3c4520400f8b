"""The states of sequences and their snapshots: slots of fixed size, each with all states of one sequence.

Recurrent state depends on every earlier position, so a sequence can go on only from a snapshot that was taken at
exactly the end of the prefix. Snapshots are taken where a step ends at the end of a page
(docs/adr/0019-cache-groups.md):

    points    the end of the prompt, rounded down to a page; where the prompt departs from what is in the tree; a sparse
              grid. Chunks of prompts end there (`Prefix.points`).
    newest    the end of the last page that a running sequence filled. This snapshot moves on with the sequence, unless
              another sequence has continued from it. The next turn of a chat begins there, and so does a preempted
              sequence.

Running sequences and snapshots share the slots. A sequence that needs a slot takes that of the snapshot that was used
least recently. A snapshot from which a sequence has continued is kept longer: it counts as if it had been used
`num_slots` uses later.

The executor of the plan copies what is in a slot: `copies` lists (from, to) in order, from -1 for zeros. A slot may be
given away as soon as its copy is in the list.

Guesses. A state cannot go back, so a sequence with guesses in a step has a second slot for that step, with a copy of
its state before the step (`hold`). When a guess was wrong, the copy becomes the state again (`go_back`), and the rows
that were right are computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from twostroke.engine.cache.pages import PagePool
from twostroke.engine.cache.prefix_tree import Node
from twostroke.engine.cache.sparse_tree import NOTHING, SparseTree

GRID_TOKENS = 2048
"""The tokens between two snapshots of a long prompt. A snapshot takes as many bytes as a thousand tokens of K and V, so
a finer grid would cost more memory than the prefixes that it makes reusable."""

ZEROS = -1
NOTHING_HELD = -1

Copies = list[tuple[int, int]]


class SlotTable(Struct, eq=False):
    """The state slots of one sequence.

    node: the pinned node of the last page boundary at which a step of the sequence ended, or at which the sequence
    began. num_pages: the pages before `node`. points: the positions whose snapshots are kept when later steps go on.
    held: the slot with the sequence's state before the step that is being computed; -1 for none.
    """

    slot: int
    node: Node
    num_pages: int
    points: frozenset[int]
    held: int = NOTHING_HELD


class StateGroup:
    """The states of all sequences and their snapshots, in slots. num_slots: at least one."""

    def __init__(self, num_slots: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.pool = PagePool(num_slots)
        self.tree = SparseTree(self.pool, page_tokens)
        self._copies: Copies = []
        self._in_flight: Copies = []
        self._newest: dict[Node, SlotTable] = {}  # node -> the table with which the node's snapshot moves on
        self._node_of: dict[int, Node] = {}  # the key is the slot of the snapshot

    @property
    def slots_left(self) -> int:
        """The number of slots that a sequence could have: free ones, and those of snapshots."""
        return self.pool.num_free + self.tree.num_unshared

    def usable(self, path: Sequence[Node], num_pages: int, num_tokens: int) -> int:
        """Returns with how many of the cached pages on `path` a new sequence can begin: the largest number whose last
        page has a snapshot. At least one of the prompt's `num_tokens` tokens is left to compute."""
        most = min(num_pages, (num_tokens - 1) // self.page_tokens)
        return next((count for count in range(most, 0, -1) if path[count - 1].page_id != NOTHING), 0)

    def points(self, num_tokens: int, usable: int, shared: int) -> tuple[int, ...]:
        """Returns the positions at which a prompt's chunks should end for snapshots, in order.

        usable: the number of the prompt's first pages with which the sequence begins. shared: the number of its first
        pages that are cached in any group; it may be larger, because a sequence can only begin at a snapshot.
        """
        size = self.page_tokens
        last, first = (num_tokens - 1) // size * size, usable * size
        grid = range(GRID_TOKENS // size * size, last, GRID_TOKENS // size * size)
        wanted = {last, min(shared * size, last), *grid}
        return tuple(sorted(point for point in wanted if point > first))

    def open(self, salt: str, matched: Sequence[Node], points: Iterable[int]) -> SlotTable:
        """Returns the slot table of a new sequence. Its slot gets the snapshot after the matched pages, or zeros.
        points: the positions at which snapshots are to be kept, as the method `points` returns them. Raises ValueError
        when no slot is left."""
        node, source = (matched[-1], matched[-1].page_id) if matched else (self.tree.root(salt), ZEROS)
        node.pins += 1
        if matched:
            self.tree.touch(node, self.pool.num_pages)
            self._newest.pop(node, None)
        slot = self._take_slot()
        if slot is None:
            self.tree.unpin(node)
            raise ValueError("no slot is left for a state")
        if slot != source:  # if equal, the sequence has taken the very snapshot from which it continues
            self._copies.append((source, slot))
        return SlotTable(slot, node, len(matched), frozenset(points))

    def fork(self, table: SlotTable) -> SlotTable | None:
        """Returns a slot with a copy of this sequence's state; None when no slot is left."""
        slot = self._take_slot()
        if slot is None:
            return None
        self._copies.append((table.slot, slot))
        table.node.pins += 1
        return SlotTable(slot, table.node, table.num_pages, table.points)

    def hold(self, table: SlotTable) -> bool:
        """Copy the state as it is before the next step, which may compute wrong guesses. Returns False when the copy
        would take the last slot, which is left to a waiting sequence."""
        if self.slots_left < 2:
            return False
        slot = self._take_slot()
        if slot is None:
            return False
        self._copies.append((table.slot, slot))
        table.held = slot
        return True

    def go_back(self, table: SlotTable) -> None:
        """Restores the sequence's state from before the step, because a guess was wrong: the copy that `hold` made
        becomes the state, and the copy's slot is released."""
        self._copies.append((table.held, table.slot))
        self.go_on(table)

    def go_on(self, table: SlotTable) -> None:
        """Keeps the sequence's state after the step, and releases the slot of the copy that `hold` made before the
        step, if there is one."""
        if table.held != NOTHING_HELD:
            self.pool.release(table.held)
            table.held = NOTHING_HELD

    def commit(self, table: SlotTable, computed: int, known_tokens: Sequence[int]) -> None:
        """Note that the sequence has computed `computed` of its tokens, and take a snapshot when a page ends there."""
        if computed % self.page_tokens or computed // self.page_tokens == table.num_pages:
            return
        before = node = table.node
        for tokens in self.tree.pages(known_tokens[table.num_pages * self.page_tokens : computed]):
            node = self.tree.insert(node, tokens, NOTHING)
        node.pins += 1
        table.node, table.num_pages = node, computed // self.page_tokens
        moves = self._newest.get(before) is table
        if moves:
            del self._newest[before]
        if node.page_id != NOTHING:
            self.tree.touch(node)
        elif self._snapshot(table, before if moves and before.page_id != NOTHING else None):
            self._newest.pop(node, None)
            if computed not in table.points:
                self._newest[node] = table
        self.tree.unpin(before)

    def _snapshot(self, table: SlotTable, moved: Node | None) -> bool:
        """Makes a snapshot of the state that is in table.slot now, for the node table.node. The snapshot gets the slot
        of `moved`, an older snapshot that is given up; without `moved`, it gets a new slot. Returns False when there is
        no slot."""
        slot = self._take_slot() if moved is None else self.tree.forget(moved)
        if slot is None:
            return False
        self._copies.append((table.slot, slot))
        self.tree.adopt(table.node, slot)
        self._node_of[slot] = table.node
        return True

    def close(self, table: SlotTable) -> None:
        """Give the slots back; snapshots stay."""
        self.go_on(table)
        self.pool.release(table.slot)
        if self._newest.get(table.node) is table:
            del self._newest[table.node]
        self.tree.unpin(table.node)

    def snapshot_for(self, salt: str, pages: Sequence[tuple[int, ...]]) -> int | None:
        """Returns a slot for the snapshot after these pages of a prompt; the caller must write the state into it at
        once. Returns None when this snapshot exists already, or when there is no slot that can be taken. salt: the
        prompt's cache salt."""
        node = self.tree.known_root(salt)
        for tokens in pages:
            node = None if node is None else node.children.get(tokens)
        if node is not None and node.page_id != NOTHING:
            self.tree.touch(node)
            return None
        slot = self._take_untouched()
        if slot is None:
            return None
        node = self.tree.root(salt)
        for tokens in pages:
            node = self.tree.insert(node, tokens, NOTHING)
        self.tree.adopt(node, slot)
        self._node_of[slot] = node
        return slot

    def content_of(self, slot: int) -> int:
        """Returns the slot that holds, at this moment, the content that `slot` will have after the pending copies."""
        for source, target in reversed(self._copies):
            if target == slot:
                slot = source
        return slot

    def _take_untouched(self) -> int | None:
        """Returns a slot that no pending copy reads or writes; None when there is none."""
        touched = {slot for copy in self._copies for slot in copy}
        refused: list[int] = []
        while (slot := self._take_slot()) is not None and slot in touched:
            refused.append(slot)
        for other in refused:
            self.pool.release(other)
        return slot

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Returns the copies of states that the next plan makes before its step, in order. Each is (slot to read, slot
        to write); -1 as the first writes zeros."""
        if not self._copies:
            return ()
        self._in_flight, self._copies = self._copies, []
        return tuple(self._in_flight)

    def settle_copies(self, failed: bool) -> None:
        """Note that the plan with the last copies was run. failed: True when some of the copies may be missing."""
        if failed:
            for _, slot in self._in_flight:
                node = self._node_of.get(slot)
                if node is not None and node.page_id == slot:
                    self.pool.release(self.tree.forget(node))
        self._in_flight = []

    def drop_cached(self) -> None:
        """Forget every snapshot."""
        while (slot := self.tree.evict_one()) is not None:
            self.pool.release(slot)

    def check(self, tables: Iterable[tuple[str, SlotTable]]) -> None:
        """Raise ValueError when an invariant is broken (for tests; walks everything)."""
        owners: dict[int, object] = {}
        pins: dict[Node, int] = {}
        for sequence_id, table in tables:
            if owners.setdefault(table.slot, sequence_id) != sequence_id:
                raise ValueError(f"slot {table.slot} has two sequences")
            _check_held(table, owners)
            pins[table.node] = pins.get(table.node, 0) + 1
        snapshots = 0
        for node in self.tree.nodes():
            if node.pins != pins.pop(node, 0):
                raise ValueError(f"a node counts {node.pins} pins, and another number of sequences need it")
            if node.page_id != NOTHING:
                snapshots += 1
                if owners.setdefault(node.page_id, node) is not node:
                    raise ValueError(f"slot {node.page_id} has a snapshot and another owner")
            elif not node.children and not node.pins:
                raise ValueError("a node without anything was left in the tree")
        if any(node.parent is not None for node in pins):
            raise ValueError("a sequence's node is not in the tree")
        if snapshots != self.tree.num_unshared:
            raise ValueError(f"the tree counts {self.tree.num_unshared} snapshots and has {snapshots}")
        for slot in range(self.pool.num_pages):
            if self.pool.count(slot) != (slot in owners):
                raise ValueError(f"slot {slot} counts {self.pool.count(slot)} owners and has {int(slot in owners)}")

    def _take_slot(self) -> int | None:
        slot = self.pool.allocate()
        return self.tree.evict_one() if slot is None else slot


def _check_held(table: SlotTable, owners: dict[int, object]) -> None:
    if table.held != NOTHING_HELD and owners.setdefault(table.held, table) is not table:
        raise ValueError(f"slot {table.held} is held and has another owner")
