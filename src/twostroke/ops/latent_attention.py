"""latent_attention: causal softmax attention of new positions over paged latents (DeepSeek-AI 2024, absorbed form).

    q (T, H, L), q_turned (T, H, R), out (T, H, L) float32, possibly strided with contiguous last two axes. A position
    holds one vector for all heads: the latent (L,) and the turned key (R,). Row r of sequence s at position p sees
    positions 0 .. p.
    scores = scale * (q . latent + q_turned . turned key)
    out = softmax(scores) @ latents

The queries have gone through the matrices that would make keys of latents (ops/head_linear.py), and the result goes
through those that make values of them. So every row, of a prompt or of an answer, is computed by the same arithmetic,
and no key or value of a head is ever made.

Implementations use the online softmax over fixed tiles of positions, as ops/attention.py says. Latents in int8 and int4
pages are widened to float32 first: both products are of floats in every format.

Knows: the contract, the reference, the cost. Must not know: implementations, why these pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention import LOG2_E
from twostroke.ops.kv_pages import read_latents
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer
from twostroke.program.op import Op, OpCost, OpPart, Shapes, StoredFormats
from twostroke.program.values import SEQUENCES, Cache, LatentKV, Sequences, Value
from twostroke.spec.formats import PAGE_TOKENS


def reference(
    out: F32Array, q: F32Array, q_turned: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float
) -> None:
    """See the module."""
    factor = np.float32(scale) * LOG2_E
    whole = np.concatenate((q, q_turned), axis=-1) * factor
    for s, context in enumerate(batch.context_tokens.tolist()):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        pages = batch.page_table[s, : -(-context // PAGE_TOKENS)]
        keys = read_latents(layer, pages).reshape(-1, layer.head_dim)[:context]
        for row in range(first, last):
            seen = keys[: context - (last - row) + 1]
            scores = whole[row] @ seen.T
            weights = np.exp2(scores - scores.max(axis=-1, keepdims=True))
            out[row] = weights @ seen[:, : layer.value_dim] / weights.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False, slots=True)
class LatentAttention(Op):
    """Softmax attention of the step's rows over their sequences' latents."""

    NAME: ClassVar[str] = "latent_attention"
    SHAPES: ClassVar[Shapes] = {"out": "T H L", "q": "T H L", "q_turned": "T H R", "layer": "1 * L"}
    PART: ClassVar[OpPart] = OpPart.ATTENTION
    reference = staticmethod(reference)

    out: Value
    q: Value
    q_turned: Value
    layer: Cache
    batch: Sequences
    scale: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """For each visible position and head 2 FLOPs for each number of it, and 2 for each of the latent; latents are
        read once for all heads."""
        asked = self.q.width + self.q_turned.width
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (asked + self.out.width)),
            per_pair=Work(2 * (asked + self.out.width)),
            per_position=Work(0, kv_bytes=formats.kv.latent_bytes(self.q.shape[1] + self.q_turned.shape[1])),
        )


def latent_attention(q: Value, q_turned: Value, layer: Cache, scale: float) -> Value:
    """What each row of q (T, H, L) and q_turned (T, H, R) sees in `layer`."""
    kind = layer.kind
    if not isinstance(kind, LatentKV):
        raise TypeError("latent_attention needs pages of latents")
    if q.shape[1] + q_turned.shape[1] != kind.head_dim:
        raise ValueError(f"queries of {q.shape[1]} and {q_turned.shape[1]} numbers do not meet {kind.head_dim}")
    out = q.fresh()
    q.trace.record(LatentAttention(out, q, q_turned, layer, SEQUENCES, scale))
    return out
