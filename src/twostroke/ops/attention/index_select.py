"""index_select: which earlier positions each row attends to (DeepSeek-AI 2025, sparse attention).

    q (T, H, D), weights (T, H) float32, possibly strided with contiguous rows. A position holds one key (D,) for all
    heads, in pages of latents. Row r of sequence s at position p sees positions 0 .. p.
    score of a position = sum over h, in order, of weights[r, h] * max(0, q[r, h] . key)
    out (T, K) float32 = the K positions with the largest scores, in rising order; of equal scores the earlier position
    is taken. A row that sees fewer than K positions has all of them, and -1 after them.

Positions are stored as float32, which holds whole numbers below 2^24 exactly. A score that is NaN counts as the
largest. One row's result depends on that row alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.kv_pages import latents_seen
from twostroke.ops.cases import between, grid
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, Cache, LatentKV, Sequences, Value
from twostroke.types.spec.formats import KVKind

FLOPS_PER_HEAD = 3
"""The FLOPs for each score of a head: a comparison, a product and an addition."""


def reference(out: F32Array, q: F32Array, weights: F32Array, layer: KVLayer, batch: AttentionBatch) -> None:
    for row, seen in latents_seen(layer, batch):
        out[row] = largest(weights[row] @ np.maximum(q[row] @ seen.T, 0), out.shape[1])


def largest(scores: F32Array, count: int) -> F32Array:
    """Returns the positions of the `count` largest scores, as (count,) float32 in rising order; see the module. Where
    there are fewer scores, -1 follows."""
    chosen = np.sort(np.argsort(-np.where(np.isnan(scores), np.inf, scores), kind="stable")[:count])
    found = np.full(count, -1, np.float32)
    found[: len(chosen)] = chosen
    return found


@op
class IndexSelect(Op):
    """The positions that each row attends to."""

    SHAPES = {"out": "T K", "q": "T H D", "weights": "T H", "layer": "1 D *"}
    CASES = (
        grid(
            H=(1, 7, 64),
            D=(16, 40, 128),
            K=(1, 7, 64, 700),
            kinds=KVKind.F32,
            q=between(-3, 3),
            weights=between(-3, 3),
            layer=between(-3, 3),
        ),
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    weights: Value
    layer: Cache
    batch: Sequences

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the scores of all visible positions. Keys are read once for all heads."""
        heads, dim = self.q.shape
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (self.q.width + heads + self.out.width)),
            per_pair=Work(heads * (2 * dim + FLOPS_PER_HEAD)),
            per_position=Work(0, kv_bytes=formats.kv.latent_bytes(dim)),
        )


def index_select(q: Value, weights: Value, layer: Cache, count: int) -> Value:
    """Records the call and returns the `count` positions of `layer` that each row of q (T, H, D) chooses."""
    if not isinstance(layer.kind, LatentKV):
        raise TypeError("index_select needs pages of latents")
    out = q.fresh(count)
    q.trace.record(IndexSelect(out, q, weights.flat(), layer, SEQUENCES))
    return out
