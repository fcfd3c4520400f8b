"""entry_select: chooses the entries of compressed KV that each row attends to (DeepSeek-AI 2026, compressed
sparse attention).

    q (T, H, D), weights (T, H) float32, possibly strided with contiguous rows. The row at position p sees entries
    0 .. (p + 1) // rate - 1 of its sequence, each a key (D,) for all heads (entries.py).
    score of an entry = sum over h, in order, of weights[r, h] * max(0, q[r, h] . entry)
    out (T, K) float32 = the K entries with the largest scores, as index_select.py chooses positions

One row's result depends on that row alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.entries import entries_seen
from twostroke.ops.attention.index_select import FLOPS_PER_HEAD, largest
from twostroke.ops.cases import between, grid
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, Cache, LatentKV, Sequences, Value
from twostroke.types.spec.formats import KVKind


def reference(out: F32Array, q: F32Array, weights: F32Array, layer: KVLayer, batch: AttentionBatch, rate: int) -> None:
    for row, _, seen in entries_seen(layer, batch, q.shape[2], rate):
        out[row] = largest(weights[row] @ np.maximum(q[row] @ seen.T, 0), out.shape[1])


@op
class EntrySelect(Op):
    """For each row, the numbers of the K entries of compressed KV with the largest scores. The row's attention reads
    these entries alone."""

    SHAPES = {"out": "T K", "q": "T H D", "weights": "T H", "layer": "1 * *"}
    CASES = (
        grid(
            H=(1, 9, 64),
            D=(16, 40, 128),
            K=(1, 7, 64),
            kinds=KVKind.F32,
            q=between(-3, 3),
            weights=between(-3, 3),
            layer=between(-3, 3),
            rate=(1, 4, 6, 24),
        ),
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    weights: Value
    layer: Cache
    batch: Sequences
    rate: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the scores of all visible entries. The entries are read once for all heads."""
        heads, dim = self.q.shape
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (self.q.width + heads + self.out.width)),
            per_pair=Work(heads * (2 * dim + FLOPS_PER_HEAD) // self.rate),
            per_position=Work(0, kv_bytes=formats.kv.latent_bytes(dim) // self.rate),
        )


def entry_select(q: Value, weights: Value, layer: Cache, rate: int, count: int) -> Value:
    """Records the call and returns, for each row of q (T, H, D), the numbers of the `count` entries of `layer` with the
    largest scores. weights (T, H): a head's share in the scores. rate: how many positions an entry stands for."""
    if not isinstance(layer.kind, LatentKV):
        raise TypeError("entry_select needs pages of entries")
    out = q.fresh(count)
    q.trace.record(EntrySelect(out, q, weights.flat(), layer, SEQUENCES, rate))
    return out
