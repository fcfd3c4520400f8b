"""StepMemory: the arrays of what a program reads and writes, each at one place for as long as the model runs.

Knows: operands, where `place` put the values.
Must not know: what ops compute, plans, requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twostroke.ops.operands import (
    AttentionBatch,
    F32Array,
    I32Array,
    KVLayer,
    PackedWeight,
    RopeTable,
    U8Array,
    new_kv_layer,
)
from twostroke.ops.rope_tables import rope_table
from twostroke.program.cache_groups import cache_groups
from twostroke.program.op import Op
from twostroke.program.place import LINE_BYTES, Placement, place
from twostroke.program.program import Program
from twostroke.program.values import (
    ADAPTERS,
    LOGIT_ADAPTERS,
    SLOTS,
    TOKEN_TYPES,
    Cache,
    Indices,
    LatentKV,
    PagedKV,
    Rope,
    Sequences,
    Size,
    StateCache,
    Value,
    Vector,
    Weight,
)
from twostroke.spec.formats import PAGE_TOKENS, KVKind


def layer_of(cache: PagedKV, kv_kind: KVKind, num_pages: int) -> KVLayer:
    """The pages of one layer."""
    latent = isinstance(cache, LatentKV)
    return new_kv_layer(kv_kind, num_pages, cache.kv_heads, cache.head_dim, cache.v_dim, is_latent=latent)


def page_table_bytes(context_tokens: int, max_sequences: int) -> int:
    """The most that the table of pages of a step takes: one int32 for each page of each sequence."""
    return -(-context_tokens // PAGE_TOKENS) * max_sequences * 4


class StepSizes(NamedTuple):
    """What one step decides: its rows, its sequences, and the rows that need logits."""

    tokens: int
    sequences: int
    logit_rows: int


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """num_pages: of the pool of each page group, in the order of `program.cache_groups`, or one number for all of them.
    context_tokens: the longest sequence. state_slots: places for states of sequences and for their copies. The others
    are limits of one step."""

    num_pages: int | tuple[int, ...]
    context_tokens: int
    max_step_tokens: int
    max_sequences: int
    state_slots: int = 0
    max_draft_tokens: int = 0

    @property
    def max_logit_rows(self) -> int:
        """Rows of a step that need logits."""
        return min(self.max_step_tokens, self.max_sequences + self.max_draft_tokens)

    def pages_of(self, group: int) -> int:
        """Pages of one group's pool."""
        return self.num_pages if isinstance(self.num_pages, int) else self.num_pages[group]

    @property
    def max_pages(self) -> int:
        """Entries of a sequence's page table."""
        return -(-self.context_tokens // PAGE_TOKENS)


@dataclass(frozen=True, eq=False, slots=True)
class GroupInputs:
    """What a step says of one page group: slots (T,), page * PAGE_TOKENS + offset of each row, and the page tables.

    The row starts and the contexts of all groups are the same arrays.
    """

    slots: I32Array
    batch: AttentionBatch


class StepMemory:
    """The arrays. token_ids, positions, token_types, adapters (T,), state_slots (S,), logit_rows (R,) and the inputs of
    each page group are filled before each step. `slots` and `batch` are the first group's; there is one even where no
    layer has pages. has_types: does the program read token_types?"""

    def __init__(
        self,
        program: Program,
        matrices: Mapping[str, PackedWeight],
        vectors: Mapping[str, F32Array],
        kv_kind: KVKind,
        sizes: MemorySizes,
    ) -> None:
        self.sizes = sizes
        self._matrices, self._vectors = matrices, vectors
        groups = cache_groups(program).pages
        self._group_of = {cache: index for index, group in enumerate(groups) for cache in group.caches}
        self._layer_of: dict[Cache, KVLayer] = {
            cache: layer_of(cache.kind, kv_kind, sizes.pages_of(index))
            for cache, index in self._group_of.items()
            if isinstance(cache.kind, PagedKV)
        }
        self._ropes: dict[Rope, RopeTable] = {
            rope: rope_table(rope.spec, sizes.context_tokens) for rope in program.ropes
        }
        self.token_ids, self.positions = (np.zeros(sizes.max_step_tokens, np.int32) for _ in range(2))
        self.token_types: I32Array = np.zeros(sizes.max_step_tokens, np.int32)
        self.has_types = any(item == TOKEN_TYPES for call in program.body for item in call.operands())
        self.adapters: I32Array = np.full(sizes.max_step_tokens, -1, np.int32)
        self.state_slots: I32Array = np.zeros(sizes.max_sequences, np.int32)
        self._states, self._state_of = _state_arrays(program, sizes.state_slots)
        self.logit_rows: I32Array = np.zeros(sizes.max_logit_rows, np.int32)
        self.logit_adapters: I32Array = np.full(sizes.max_logit_rows, -1, np.int32)
        self.has_adapters = any(
            item in (ADAPTERS, LOGIT_ADAPTERS)
            for call in program.calls
            for item in call.operands()
            if isinstance(item, Indices)
        )
        rows = (np.zeros(sizes.max_sequences + 1, np.int32), np.zeros(sizes.max_sequences, np.int32))
        self.page_inputs = tuple(
            GroupInputs(
                np.zeros(sizes.max_step_tokens, np.int32),
                AttentionBatch(*rows, np.zeros((sizes.max_sequences, sizes.max_pages), np.int32)),
            )
            for _ in groups or [None]
        )
        self._placement: Placement = place(program, sizes.max_step_tokens, sizes.max_logit_rows)
        self._arena: U8Array = _aligned(self._placement.num_bytes)
        self._largest = StepSizes(sizes.max_step_tokens, sizes.max_sequences, sizes.max_logit_rows)

    @property
    def layers(self) -> tuple[KVLayer, ...]:
        """K and V of every layer that has them, in the program's order."""
        return tuple(layer for _, layer in sorted(self._layer_of.items(), key=lambda pair: pair[0].index))

    def layers_of(self, group: int) -> tuple[KVLayer, ...]:
        """Those of one page group."""
        return tuple(layer for cache, layer in self._layer_of.items() if self._group_of[cache] == group)

    @property
    def slots(self) -> I32Array:
        """The first group's."""
        return self.page_inputs[0].slots

    @property
    def batch(self) -> AttentionBatch:
        """The first group's."""
        return self.page_inputs[0].batch

    def copy_states(self, copies: Iterable[tuple[int, int]]) -> None:
        """All states of slot `from` to slot `to`, in order; from -1 sets the slot to zero."""
        for source, target in copies:
            self._states[target] = 0 if source < 0 else self._states[source]

    def copy_pages(self, copies: Iterable[tuple[int, int, int]]) -> None:
        """K and V of every layer of a page group, (group, from page, to page) in order."""
        for group, source, target in copies:
            for layer in self.layers_of(group):
                layer.data[target] = layer.data[source]

    def choose_logit_rows(self, rows: Sequence[int] | I32Array) -> None:
        """The rows of the step that need logits (R,); the adapters of all rows are written."""
        self.logit_rows[: len(rows)] = rows
        if self.has_adapters:
            self.logit_adapters[: len(rows)] = self.adapters[self.logit_rows[: len(rows)]]

    @property
    def has_states(self) -> bool:
        """Do sequences keep states?"""
        return bool(self._state_of)

    def value(self, value: Value, sizes: StepSizes) -> F32Array:
        """The rows of a value in a step of these sizes, a view into the arena."""
        root, rows = value.root, sizes.logit_rows if value.rows is Size.LOGIT_ROWS else sizes.tokens
        at = self._placement.offsets[root]
        whole = self._arena[at : at + 4 * rows * root.width].view(np.float32).reshape(rows, root.width)
        return whole[:, value.offset : value.offset + value.width].reshape(rows, *value.shape)

    def operands(self, call: Op, sizes: StepSizes | None = None) -> tuple[Any, ...]:
        """What a call's operands are in a step of these sizes; of the largest step where none are given."""
        items = call.operands()
        # A call that has pages, the place of new K and V and sequences means those of the pages' group.
        group = next((self._group_of[item] for item in items if isinstance(item, Cache) and item in self._group_of), 0)
        return tuple(self._operand(item, sizes or self._largest, self.page_inputs[group]) for item in items)

    def _operand(self, item: Any, sizes: StepSizes, inputs: GroupInputs) -> Any:
        if isinstance(item, Value):
            return self.value(item, sizes)
        if isinstance(item, Weight):
            return self._matrices[item.key]
        if isinstance(item, Vector):
            return self._vectors[item.key]
        if isinstance(item, StateCache):
            return self._state_of[item]
        if isinstance(item, Cache):
            return self._layer_of[item]
        if isinstance(item, Rope):
            return self._ropes[item]
        if isinstance(item, Indices):
            return getattr(inputs if item == SLOTS else self, item.name)[: _count(sizes, item.count)]
        if isinstance(item, Sequences):
            return _first(inputs.batch, sizes.sequences)
        return item


def _first(batch: AttentionBatch, count: int) -> AttentionBatch:
    """The first `count` sequences of the batch."""
    return AttentionBatch(batch.row_starts[: count + 1], batch.context_tokens[:count], batch.page_table[:count])


def _count(sizes: StepSizes, size: Size) -> int:
    counts = {Size.TOKENS: sizes.tokens, Size.SEQUENCES: sizes.sequences, Size.LOGIT_ROWS: sizes.logit_rows}
    return counts[size]


def _state_arrays(program: Program, slots: int) -> tuple[F32Array, dict[StateCache, F32Array]]:
    """One array (slots, numbers of all states), and of each state its part (slots, elements), from a cache line on.

    All that a sequence keeps lies together, so that a copy is one piece of memory. Untouched slots cost no memory.
    """
    firsts: dict[StateCache, int] = {}
    total, line = 0, LINE_BYTES // 4
    for state in program.states():
        firsts[state] = total
        total += -(-state.elements // line) * line
    room = np.zeros(slots * total + line, np.float32)
    whole = room[-room.ctypes.data // 4 % line :][: slots * total].reshape(slots, total)
    return whole, {state: whole[:, first : first + state.elements] for state, first in firsts.items()}


def _aligned(num_bytes: int) -> U8Array:
    room = np.empty(num_bytes + LINE_BYTES, np.uint8)
    aligned: U8Array = room[-room.ctypes.data % LINE_BYTES :][:num_bytes]
    return aligned
