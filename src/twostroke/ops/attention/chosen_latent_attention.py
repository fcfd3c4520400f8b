"""chosen_latent_attention: latent_attention of chosen positions (DeepSeek-AI 2025, sparse attention).

    q, q_turned, out: see latent_attention.py. chosen (T, K) float32: for each row the positions that it sees, in rising
    order, then -1, as index_select.py makes them. Positions that the row does not see are left out. Where
    sinks (H,) are given, the sum of the softmax also has exp(sinks[h]), a score without a value (Hunyuan 4).

Implementations may compute the scores of other positions and throw them away.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.attention.kv_pages import latents_seen
from twostroke.ops.attention.latent_attention import attended, check_latent, latent_cost, scaled_queries
from twostroke.ops.cases import grid, rising, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, Cache, Sequences, Value, Vector


def reference(call: CallArrays) -> None:
    out, q, q_turned, chosen, layer, batch, scale, sinks = call
    whole = scaled_queries(q, q_turned, scale)
    for row, seen in latents_seen(layer, batch):
        places = chosen[row].astype(np.int64)
        places = places[(places >= 0) & (places < len(seen))]
        out[row] = attended(whole[row], seen[places], layer.value_dim, sinks)


@op
class ChosenLatentAttention(Op):
    """Softmax attention of the step's rows over chosen latents of their sequences."""

    SHAPES = {
        "out": "T H L",
        "q": "T H L",
        "q_turned": "T H R",
        "chosen": "T K",
        "layer": "1 * L",
        "sinks": "H",
    }
    CASES = (
        grid(1e-4, H=(3, 20), L=(16, 40), R=8, K=20, chosen=rising(150), scale=0.1, sinks=(None, times(1))),
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    q_turned: Value
    chosen: Value
    layer: Cache
    batch: Sequences
    scale: float
    sinks: Vector | None = None

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts all visible positions, because the kernels compute the scores of all of them."""
        return latent_cost(self.q, self.q_turned, self.out, formats, self.chosen.width)


def chosen_latent_attention(
    q: Value, q_turned: Value, chosen: Value, layer: Cache, scale: float, sinks: Vector | None = None
) -> Value:
    """Records the call and returns the output of each row over its `chosen` (T, K) positions in `layer`. q (T, H, L):
    the part of the queries that is multiplied with latents (L,). q_turned (T, H, R): the part with rotary positions."""
    check_latent(ChosenLatentAttention.NAME, q, q_turned, layer)
    out = q.fresh()
    q.trace.record(ChosenLatentAttention(out, q, q_turned, chosen, layer, SEQUENCES, scale, sinks))
    return out
