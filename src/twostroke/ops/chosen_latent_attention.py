"""chosen_latent_attention: latent_attention of chosen positions (DeepSeek-AI 2025, sparse attention).

    q, q_turned, out: as in ops/latent_attention.py. chosen (T, K) float32: for each row the positions that it sees, in
    rising order, then -1, as ops/index_select.py makes them. Positions that the row does not see are left out.

Implementations may compute the scores of other positions and throw them away.

Knows: the contract, the reference, the cost. Must not know: implementations, who chooses.
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
    out: F32Array,
    q: F32Array,
    q_turned: F32Array,
    chosen: F32Array,
    layer: KVLayer,
    batch: AttentionBatch,
    scale: float,
) -> None:
    """See the module."""
    factor = np.float32(scale) * LOG2_E
    whole = np.concatenate((q, q_turned), axis=-1) * factor
    for s, context in enumerate(batch.context_tokens.tolist()):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        pages = batch.page_table[s, : -(-context // PAGE_TOKENS)]
        keys = read_latents(layer, pages).reshape(-1, layer.head_dim)
        for row in range(first, last):
            places = chosen[row].astype(np.int64)
            seen = keys[places[(places >= 0) & (places <= context - (last - row))]]
            scores = whole[row] @ seen.T
            weights = np.exp2(scores - scores.max(axis=-1, keepdims=True))
            out[row] = weights @ seen[:, : layer.value_dim] / weights.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False, slots=True)
class ChosenLatentAttention(Op):
    """Softmax attention of the step's rows over chosen latents of their sequences."""

    NAME: ClassVar[str] = "chosen_latent_attention"
    SHAPES: ClassVar[Shapes] = {
        "out": "T H L",
        "q": "T H L",
        "q_turned": "T H R",
        "chosen": "T K",
        "layer": "1 * L",
    }
    PART: ClassVar[OpPart] = OpPart.ATTENTION
    reference = staticmethod(reference)

    out: Value
    q: Value
    q_turned: Value
    chosen: Value
    layer: Cache
    batch: Sequences
    scale: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """That of all visible positions: the kernels compute the scores of all of them."""
        asked = self.q.width + self.q_turned.width
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (asked + self.out.width + self.chosen.width)),
            per_pair=Work(2 * (asked + self.out.width)),
            per_position=Work(0, kv_bytes=formats.kv.latent_bytes(self.q.shape[1] + self.q_turned.shape[1])),
        )


def chosen_latent_attention(q: Value, q_turned: Value, chosen: Value, layer: Cache, scale: float) -> Value:
    """What each row of q (T, H, L) and q_turned (T, H, R) sees of its `chosen` (T, K) positions in `layer`."""
    kind = layer.kind
    if not isinstance(kind, LatentKV):
        raise TypeError("chosen_latent_attention needs pages of latents")
    if q.shape[1] + q_turned.shape[1] != kind.head_dim:
        raise ValueError(f"queries of {q.shape[1]} and {q_turned.shape[1]} numbers do not meet {kind.head_dim}")
    out = q.fresh()
    q.trace.record(ChosenLatentAttention(out, q, q_turned, chosen, layer, SEQUENCES, scale))
    return out
