"""entry_write: puts entries of compressed KV into their pages, in the step that computes the last of their positions.

    rows (T, D) float32, possibly strided with contiguous rows; slots (T,) int32 = page * PAGE_TOKENS + offset of each
    position; positions (T,) int32. A row whose position p has (p + 1) % rate == 0 is an entry. It is written in the
    layout of entries.py. The other rows are left out.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.entries import write_entries
from twostroke.ops.cases import grid, wild
from twostroke.ops.operands import F32Array, I32Array, KVLayer
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Cache, Indices, LatentKV, Value
from twostroke.types.spec.formats import PAGE_TOKENS


def reference(layer: KVLayer, rows: F32Array, slots: I32Array, positions: I32Array, rate: int) -> None:
    """Writes entries of compressed KV into their pages. A row at position p is an entry if it is the last of `rate`
    positions, (p + 1) % rate == 0; other rows are left out. Raises IndexError for a slot outside the pool."""
    if slots.size and (int(slots.min()) < 0 or int(slots.max()) >= layer.num_pages * PAGE_TOKENS):
        raise IndexError("KV slot outside the pool")
    closing = np.flatnonzero((positions + 1) % rate == 0)
    write_entries(layer, rows[closing], slots[closing] // PAGE_TOKENS, slots[closing] % PAGE_TOKENS // rate)


@op
class EntryWrite(Op):
    """Writes compressed KV entries into their pages: the rows of those positions that are the last of an entry's `rate`
    positions."""

    SHAPES = {"layer": "1 * *", "rows": "T D", "slots": "T", "positions": "T"}
    CASES = (grid(T=130, D=(2, 40, 512), rate=(1, 4, 6, 24, 128), rows=wild),)

    layer: Cache
    rows: Value
    slots: Indices
    positions: Indices
    rate: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts one of every `rate` rows: it is read as float32 and written in the layer's format."""
        width = self.rows.width
        stored = formats.kv.latent_bytes(width)
        return OpCost(per_row=Work(0, kv_bytes=stored // self.rate, activation_bytes=4 * width // self.rate))


def entry_write(layer: Cache, rows: Value, slots: Indices, positions: Indices, rate: int) -> None:
    """Records the call that keeps the rows of `rows` (T, D) whose position is the last of its entry's `rate`
    positions."""
    if not isinstance(layer.kind, LatentKV):
        raise TypeError("entry_write needs pages of entries")
    rows.trace.record(EntryWrite(layer, rows.flat(), slots, positions, rate))
