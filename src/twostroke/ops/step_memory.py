"""StepMemory: the arrays that a program reads and writes. Each stays at one place for as long as the model runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from twostroke.ops.attention.rope_tables import TurnedRows, WriteRows, rope_table
from twostroke.ops.device_memory import HOST, DeviceMemory
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
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.op import Op
from twostroke.ops.program.place import LINE_BYTES, Placement, place
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import (
    ADAPTERS,
    LOGIT_ADAPTERS,
    ROW_ENDS,
    ROW_MARKS,
    ROW_NUMBERS,
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
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind


def layer_of(cache: PagedKV, kv_kind: KVKind, num_pages: int, device: DeviceMemory = HOST) -> KVLayer:
    """Makes the KV pages of one layer."""
    latent = isinstance(cache, LatentKV)
    sizes = (cache.kv_heads, cache.head_dim, cache.v_dim)
    return new_kv_layer(kv_kind, num_pages, *sizes, is_latent=latent, memory=device)


def page_table_bytes(context_tokens: int, max_sequences: int) -> int:
    """Returns the largest number of bytes of a step's page table: one int32 for each page of each sequence."""
    return -(-context_tokens // PAGE_TOKENS) * max_sequences * 4


class StepSizes(NamedTuple):
    """The sizes of one step: its rows, its sequences, and the rows that need logits. first: the index of the step's
    first row that is computed; it is above 0 only where a step is computed in blocks of rows (`Program.cuts`)."""

    tokens: int
    sequences: int
    logit_rows: int
    first: int = 0


class MemorySizes(Struct, frozen=True):
    """The sizes of a program's memory. num_pages: the number of pages in the pool of each page group, in the order of
    `program.cache_groups`, or one number for all groups. context_tokens: the longest sequence. state_slots: the number
    of places for states of sequences and for their copies. max_step_tokens, max_sequences, max_draft_tokens: limits of
    one step. groups: which of the whole model's page groups this program has, where it is a part of a model; None for
    all."""

    num_pages: int | tuple[int, ...]
    context_tokens: int
    max_step_tokens: int
    max_sequences: int
    state_slots: int = 0
    max_draft_tokens: int = 0
    groups: tuple[int, ...] | None = None

    @property
    def max_logit_rows(self) -> int:
        """The largest number of rows of a step that need logits."""
        return min(self.max_step_tokens, self.max_sequences + self.max_draft_tokens)

    def pages_of(self, group: int) -> int:
        """Returns the number of pages in one group's pool."""
        return self.num_pages if isinstance(self.num_pages, int) else self.num_pages[group]

    @property
    def max_pages(self) -> int:
        """The number of entries of a sequence's page table."""
        return -(-self.context_tokens // PAGE_TOKENS)


class GroupInputs(Struct, frozen=True, eq=False):
    """The inputs of a step for one page group. slots: (T,), page * PAGE_TOKENS + offset of each row. batch: the page
    tables; the row starts and the contexts of all groups are the same arrays. written: for each row of
    `batch.page_table`, the list of pages that was last copied into this row; None for an unknown content. The runner
    compares lists with it and copies only what has changed."""

    slots: I32Array
    batch: AttentionBatch
    written: list[Sequence[int] | None]


class StepMemory:
    """The arrays of a program. token_ids, positions, token_types, adapters (T,), state_slots (S,), logit_rows (R,) and
    the inputs of each page group are filled before each step. `slots` and `batch` are those of the first group, which
    exists even where no layer has pages. has_types: whether the program reads token_types. row_marks: which rows are
    replaced by rows from outside, such as those of an image. row_ends: the end of each row's span, for span_attention.
    row_numbers: 0, 1, 2 and so on. row_marks, row_ends and row_numbers are empty where the program reads none of them.
    row_turns: rope tables with one row for each row of the step (M-RoPE); they are written before each step.

    device: the memory that holds values, caches and rope tables; matrices and vectors are there already. The arrays
    that are filled before a step are in one block of the host's memory (`inputs`), with page tables last.
    """

    def __init__(
        self,
        program: Program,
        matrices: Mapping[str, PackedWeight],
        vectors: Mapping[str, F32Array],
        kv_kind: KVKind,
        sizes: MemorySizes,
        device: DeviceMemory = HOST,
        write: WriteRows | None = None,
    ) -> None:
        """matrices, vectors: the loaded weights, by their keys. write: a function that fills the rope tables; None for
        NumPy."""
        self.sizes, self._device = sizes, device
        self._matrices, self._vectors = matrices, vectors
        groups = cache_groups(program).pages
        self._group_of = {cache: index for index, group in enumerate(groups) for cache in group.caches}
        self._layer_of: dict[Cache, KVLayer] = {
            cache: layer_of(cache.kind, kv_kind, sizes.pages_of(index), device)
            for cache, index in self._group_of.items()
            if isinstance(cache.kind, PagedKV)
        }
        longest = sizes.context_tokens
        usual = {rope: rope_table(rope.spec, longest, self._rates(rope), write) for rope in program.ropes}
        self.row_turns = tuple(
            TurnedRows(rope.turns, table, sizes.max_step_tokens, device) for rope, table in usual.items() if rope.turns
        )
        by_row = iter(self.row_turns)
        self._ropes: dict[Rope, RopeTable] = {
            rope: next(by_row).rows if rope.turns else _on(device, table) for rope, table in usual.items()
        }
        tokens, sequences, tables = sizes.max_step_tokens, sizes.max_sequences, len(groups) or 1
        read = _inputs_of(program)
        marked = tokens if read & {ROW_MARKS, ROW_ENDS, ROW_NUMBERS} else 0
        shapes: list[tuple[int, ...]] = [*[(tokens,)] * 4, (sequences,), (sequences,), (sequences + 1,)]
        shapes += [(sizes.max_logit_rows,)] * 2 + [(marked,)] * 3
        shapes += [(tokens,)] * tables + [(sequences, sizes.max_pages)] * tables
        self.inputs, parts = _input_block(device, shapes)
        self.token_ids, self.positions, self.token_types, self.adapters = parts[:4]
        self.state_slots, contexts, starts, self.logit_rows, self.logit_adapters = parts[4:9]
        (self.row_marks, self.row_ends, self.row_numbers), groups_of = parts[9:12], parts[12:]
        self.row_numbers[:] = np.arange(marked)
        self.has_types = TOKEN_TYPES in read
        self.adapters[:] = -1
        self._states, self._state_of = _state_arrays(program, sizes.state_slots, device)
        self.logit_adapters[:] = -1
        self.has_adapters = bool(read & {ADAPTERS, LOGIT_ADAPTERS})
        self.page_inputs = tuple(
            GroupInputs(slots, AttentionBatch(starts, contexts, table), [None] * sequences)
            for slots, table in zip(groups_of[:tables], groups_of[tables:], strict=True)
        )
        self._tables_at = self.page_inputs[-1].batch.page_table.ctypes.data - self.inputs.ctypes.data
        self._placement: Placement = place(program, sizes.max_step_tokens, sizes.max_logit_rows)
        self._arena: U8Array = device.empty(self._placement.num_bytes)
        self._largest = StepSizes(sizes.max_step_tokens, sizes.max_sequences, sizes.max_logit_rows)

    def _rates(self, rope: Rope) -> F32Array | None:
        """Returns the learned factors of a rope table's frequencies (Rope.rates), in the host's memory; None without
        them."""
        return None if rope.rates is None else self._device.get(self._vectors[rope.rates.key])

    def used_input_bytes(self, sizes: StepSizes) -> int:
        """Returns how many bytes a step of these sizes may read, from the beginning of the inputs' block."""
        return self._tables_at + sizes.sequences * self.sizes.max_pages * 4

    @property
    def layers(self) -> tuple[KVLayer, ...]:
        """K and V of every layer that has them, in the program's order."""
        return tuple(layer for _, layer in sorted(self._layer_of.items(), key=lambda pair: pair[0].index))

    def layers_of(self, group: int) -> tuple[KVLayer, ...]:
        """The KV layers of one page group."""
        return tuple(layer for cache, layer in self._layer_of.items() if self._group_of[cache] == group)

    @property
    def slots(self) -> I32Array:
        """For each row of the step, the place of its K and V in the pages of the first cache group: page * PAGE_TOKENS
        + offset."""
        return self.page_inputs[0].slots

    @property
    def batch(self) -> AttentionBatch:
        """The page tables and row starts of the first page group."""
        return self.page_inputs[0].batch

    def copy_states(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copies all states from one slot to another, for each (from, to) in order. A `from` of -1 sets the slot to
        zero."""
        for source, target in copies:
            if source < 0:
                self._device.clear_row(self._states, target)
            else:
                self._device.copy_row(self._states, source, target)

    def copy_pages(self, copies: Iterable[tuple[int, int, int]]) -> None:
        """Copies K and V of every layer of a page group, for each (group, from page, to page) in order. Groups that
        this program does not have are skipped."""
        own = self.sizes.groups
        for group, source, target in copies:
            if own is not None and group not in own:
                continue
            for layer in self.layers_of(group if own is None else own.index(group)):
                self._device.copy_row(layer.data, source, target)

    def tables(self, planned: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """Returns those page tables of a sequence that belong to this program's page groups. planned: the tables of all
        groups of the whole model."""
        own = self.sizes.groups
        return planned if own is None else [planned[group] for group in own]

    def choose_logit_rows(self, rows: Sequence[int] | I32Array) -> None:
        """Writes the numbers (R,) of the step's rows that need logits, and their adapters. The adapters of all rows
        must be written before."""
        self.logit_rows[: len(rows)] = rows
        if self.has_adapters:
            self.logit_adapters[: len(rows)] = self.adapters[self.logit_rows[: len(rows)]]

    @property
    def states(self) -> F32Array:
        """All states, one row for each slot."""
        return self._states

    @property
    def has_states(self) -> bool:
        """Whether sequences keep states."""
        return bool(self._state_of)

    def value(self, value: Value, sizes: StepSizes) -> F32Array:
        """Returns the rows of a value in a step of these sizes, as a view into the arena."""
        root, rows, at = value.root, sizes.logit_rows, self._placement.offsets[value.root]
        if value.rows is Size.TOKENS:
            rows, at = sizes.tokens, at + 4 * sizes.first * root.width
        whole = self._arena[at : at + 4 * rows * root.width].view(np.float32).reshape(rows, root.width)
        return whole[:, value.offset : value.offset + value.width].reshape(rows, *value.shape)

    def numbers(self, value: Value, sizes: StepSizes) -> F32Array:
        """Returns the rows of a value, readable in this process until the next step. It is a view, or a copy of rows on
        a device."""
        found: F32Array = self._device.get(self.value(value, sizes))
        return found

    def fill(self, value: Value, sizes: StepSizes, rows: F32Array) -> None:
        """Writes the rows of one of the program's given values (inputs). The value is contiguous."""
        self._device.write(self.value(value, sizes), rows)

    def fill_rows(self, value: Value, sizes: StepSizes, rows: F32Array, first: int) -> None:
        """Writes some rows of one of the program's given values (inputs), from row `first` on."""
        self._device.write(self.value(value, sizes)[first : first + len(rows)], rows)

    def operands(self, call: Op, sizes: StepSizes | None = None) -> tuple[Any, ...]:
        """Returns a call's operands in a step of these sizes. Without sizes they are those of the largest step."""
        items = call.operands()
        # When a call has a cache, its pages, the place of new K and V, and its sequences are those of the cache's
        # group.
        group = next((self._group_of[item] for item in items if isinstance(item, Cache) and item in self._group_of), 0)
        own = sizes or self._largest_of(items)
        return tuple(self._operand(item, own, self.page_inputs[group]) for item in items)

    def _largest_of(self, items: Iterable[Any]) -> StepSizes:
        """Returns the sizes of the largest step for a call with the operands `items`. Its number of rows is smaller for
        calls after the fold of an image encoder, where groups of rows have become one row each."""
        roots = (item.root for item in items if isinstance(item, Value))
        fewer = [self._placement.fewer[root] for root in roots if root in self._placement.fewer]
        return self._largest._replace(tokens=min(fewer)) if fewer else self._largest

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
            first = sizes.first if item.count is Size.TOKENS else 0
            return getattr(inputs if item == SLOTS else self, item.name)[first : first + _count(sizes, item.count)]
        if isinstance(item, Sequences):
            return _first(inputs.batch, sizes.sequences)
        return item


def _inputs_of(program: Program) -> set[Indices]:
    """Returns the inputs of a step that the program's calls read."""
    return {item for call in program.calls for item in call.operands() if isinstance(item, Indices)}


def _first(batch: AttentionBatch, count: int) -> AttentionBatch:
    """Returns the part of the batch with its first `count` sequences."""
    return AttentionBatch(batch.row_starts[: count + 1], batch.context_tokens[:count], batch.page_table[:count])


def _count(sizes: StepSizes, size: Size) -> int:
    counts = {Size.TOKENS: sizes.tokens, Size.SEQUENCES: sizes.sequences, Size.LOGIT_ROWS: sizes.logit_rows}
    return counts[size]


def _state_arrays(program: Program, slots: int, device: DeviceMemory) -> tuple[F32Array, dict[StateCache, F32Array]]:
    """Makes one array (slots, numbers of all states), and for each state a view of its part (slots, elements), which
    begins at a cache line. The states of a sequence lie together, so that a copy is one piece of memory. Untouched
    slots cost no memory."""
    firsts: dict[StateCache, int] = {}
    total, line = 0, LINE_BYTES // 4
    for state in program.states():
        firsts[state] = total
        total += -(-state.elements // line) * line
    whole: F32Array = device.zeros(4 * slots * total).view(np.float32).reshape(slots, total)
    return whole, {state: whole[:, first : first + state.elements] for state, first in firsts.items()}


def _on(device: DeviceMemory, table: RopeTable) -> RopeTable:
    return RopeTable(device.put(table.cos), device.put(table.sin))


def _input_block(device: DeviceMemory, shapes: list[tuple[int, ...]]) -> tuple[U8Array, list[I32Array]]:
    """Makes one block of memory, and returns it with its parts of these shapes. Each part begins at a cache line."""
    sizes = [-(-4 * math.prod(shape) // LINE_BYTES) * LINE_BYTES for shape in shapes]
    block, firsts = device.inputs(sum(sizes)), itertools.accumulate(sizes, initial=0)
    return block, [
        block[first : first + 4 * math.prod(shape)].view(np.int32).reshape(shape)
        for first, shape in zip(firsts, shapes, strict=False)
    ]
