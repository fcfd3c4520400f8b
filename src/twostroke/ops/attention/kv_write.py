"""kv_write: put K and V of new positions into their pages.

    k (T, kv_heads, head_dim), v (T, kv_heads, value_dim) float32, possibly strided with contiguous last two axes; slots
    (T,) int32 = page * PAGE_TOKENS + offset. bf16 layers round to nearest, ties to even; int8 and int4 layers as
    `quantize_rows` of kv_pages.py, one scale for each token and head.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.attention.kv_pages import write_rows
from twostroke.ops.cases import grid, wild
from twostroke.ops.operands import F32Array, I32Array, KVLayer
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Cache, Indices, Value
from twostroke.types.spec.formats import PAGE_TOKENS


def reference(layer: KVLayer, k: F32Array, v: F32Array, slots: I32Array) -> None:
    """Writes k and v of each row at the page and offset that its slot names. Raises IndexError for a slot outside the
    pool."""
    if slots.size and (int(slots.min()) < 0 or int(slots.max()) >= layer.num_pages * PAGE_TOKENS):
        raise IndexError("KV slot outside the pool")
    write_rows(layer, k, v, slots // PAGE_TOKENS, slots % PAGE_TOKENS)


@op
class KVWrite(Op):
    """Writes K and V of new positions into their pages."""

    SHAPES = {"layer": "H D V", "k": "T H D", "v": "T H V", "slots": "T"}
    CASES = (
        grid(T=(1, 20), H=(1, 2), D=(1, 15, 31, 64), V="D", k=wild, v=wild),
        grid(T=5, H=2, D=(48, 17), V=(33, 64)),
    )
    BY_HEADS = True

    layer: Cache
    k: Value
    v: Value
    slots: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts K and V read as float32, and written in the layer's format."""
        heads, head_dim = self.k.shape
        written = heads * formats.kv.token_bytes(head_dim, self.v.shape[1])
        return OpCost(per_row=Work(0, kv_bytes=written, activation_bytes=4 * (self.k.width + self.v.width)))


def kv_write(layer: Cache, k: Value, v: Value, slots: Indices) -> None:
    """Records the call that keeps k (T, kv_heads, head_dim) and v (T, kv_heads, value_dim) at `slots`."""
    k.trace.record(KVWrite(layer, k, v, slots))
