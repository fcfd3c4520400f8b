"""StepMemory: the arrays of what a program reads and writes, each at one place for as long as the model runs.

Knows: operands, where `place` put the values.
Must not know: what ops compute, plans, requests.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from twostroke.program.op import Op
from twostroke.program.place import LINE_BYTES, Placement, place
from twostroke.program.program import Program
from twostroke.program.values import Cache, Indices, PagedKV, Rope, Sequences, Size, Value, Vector, Weight
from twostroke.spec.formats import PAGE_TOKENS, KVKind


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
    """num_pages: of the KV pool. context_tokens: the longest sequence. The others are limits of one step."""

    num_pages: int
    context_tokens: int
    max_step_tokens: int
    max_sequences: int

    @property
    def max_pages(self) -> int:
        """Pages of one sequence."""
        return min(self.num_pages, -(-self.context_tokens // PAGE_TOKENS))


class StepMemory:
    """The arrays. token_ids, positions, slots (T,), logit_rows (R,) and `batch` are inputs, filled before each step."""

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
        self.layers: tuple[KVLayer, ...] = tuple(
            new_kv_layer(kv_kind, sizes.num_pages, kind.kv_heads, kind.head_dim) for kind in program.paged()
        )
        paged = [cache for cache in program.caches if isinstance(cache.kind, PagedKV)]
        self._layer_of: dict[Cache, KVLayer] = dict(zip(paged, self.layers, strict=True))
        self._ropes: dict[Rope, RopeTable] = {
            rope: rope_table(rope.spec, sizes.context_tokens) for rope in program.ropes
        }
        self.token_ids, self.positions, self.slots = (np.zeros(sizes.max_step_tokens, np.int32) for _ in range(3))
        self.logit_rows: I32Array = np.zeros(sizes.max_sequences, np.int32)
        self.batch = AttentionBatch(
            np.zeros(sizes.max_sequences + 1, np.int32),
            np.zeros(sizes.max_sequences, np.int32),
            np.zeros((sizes.max_sequences, sizes.max_pages), np.int32),
        )
        self._placement: Placement = place(program, sizes.max_step_tokens, sizes.max_sequences)
        self._arena: U8Array = _aligned(self._placement.num_bytes)
        self._largest = StepSizes(sizes.max_step_tokens, sizes.max_sequences, sizes.max_sequences)

    def value(self, value: Value, sizes: StepSizes) -> F32Array:
        """The rows of a value in a step of these sizes, a view into the arena."""
        root, rows = value.root, sizes.logit_rows if value.rows is Size.LOGIT_ROWS else sizes.tokens
        at = self._placement.offsets[root]
        whole = self._arena[at : at + 4 * rows * root.width].view(np.float32).reshape(rows, root.width)
        return whole[:, value.offset : value.offset + value.width].reshape(rows, *value.shape)

    def operands(self, call: Op, sizes: StepSizes | None = None) -> tuple[Any, ...]:
        """What a call's operands are in a step of these sizes; of the largest step where none are given."""
        return tuple(self._operand(item, sizes or self._largest) for item in call.operands())

    def _operand(self, item: Any, sizes: StepSizes) -> Any:
        if isinstance(item, Value):
            return self.value(item, sizes)
        if isinstance(item, Weight):
            return self._matrices[item.key]
        if isinstance(item, Vector):
            return self._vectors[item.key]
        if isinstance(item, Cache):
            return self._layer_of[item]
        if isinstance(item, Rope):
            return self._ropes[item]
        if isinstance(item, Indices):
            count = sizes.logit_rows if item.count is Size.LOGIT_ROWS else sizes.tokens
            return getattr(self, item.name)[:count]
        if isinstance(item, Sequences):
            return self.sequences(sizes.sequences)
        return item

    def sequences(self, count: int) -> AttentionBatch:
        """The first `count` sequences of the batch."""
        batch = self.batch
        return AttentionBatch(batch.row_starts[: count + 1], batch.context_tokens[:count], batch.page_table[:count])


def _aligned(num_bytes: int) -> U8Array:
    room = np.empty(num_bytes + LINE_BYTES, np.uint8)
    aligned: U8Array = room[-room.ctypes.data % LINE_BYTES :][:num_bytes]
    return aligned
