"""latent_write: put the latents of new positions into their pages.

    rows (T, D) float32, the latent and the turned key after it, possibly strided with contiguous rows; slots (T,)
    int32 = page * PAGE_TOKENS + offset. bf16 layers round to nearest, ties to even; int8 and int4 layers as
    `quantize_rows` of kv_pages.py, the latent and the turned key each under a scale of its own.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.attention.kv_pages import write_latents
from twostroke.ops.cases import grid, wild
from twostroke.ops.operands import F32Array, I32Array, KVLayer
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Cache, Indices, LatentKV, Value
from twostroke.types.spec.formats import PAGE_TOKENS


def reference(layer: KVLayer, rows: F32Array, slots: I32Array) -> None:
    """Writes each row, a latent and the part of the key with rotary positions, at the page and offset that its slot
    names. Raises IndexError for a slot outside the pool."""
    if slots.size and (int(slots.min()) < 0 or int(slots.max()) >= layer.num_pages * PAGE_TOKENS):
        raise IndexError("KV slot outside the pool")
    write_latents(layer, rows, slots // PAGE_TOKENS, slots % PAGE_TOKENS)


@op
class LatentWrite(Op):
    """Writes the latents of new positions into their pages."""

    SHAPES = {"layer": "1 D *", "rows": "T D", "slots": "T"}
    CASES = tuple(
        grid(T=(1, 21), D=latent + turned, L=latent, rows=wild)
        for latent, turned in ((16, 8), (20, 6), (15, 2), (7, 5), (512, 64))
    )

    layer: Cache
    rows: Value
    slots: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts rows that are read as float32 and written in the layer's format."""
        width = self.rows.width
        return OpCost(per_row=Work(0, kv_bytes=formats.kv.latent_bytes(width), activation_bytes=4 * width))


def latent_write(layer: Cache, rows: Value, slots: Indices) -> None:
    """Records the call that keeps rows (T, D) at `slots`."""
    if not isinstance(layer.kind, LatentKV):
        raise TypeError("latent_write needs pages of latents")
    rows.trace.record(LatentWrite(layer, rows.flat(), slots))
