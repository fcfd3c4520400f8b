"""latent_attention: causal softmax attention of new positions over paged latents (DeepSeek-AI 2024, absorbed form).

    q (T, H, L), q_turned (T, H, R), out (T, H, L) float32, possibly strided with contiguous last two axes. A position
    holds one vector for all heads: the latent (L,) and the part of the key with rotary positions, the turned key (R,);
    q_turned is the same part of the queries. Row r of sequence s at position p sees positions
    max(0, p - window + 1) .. p (window 0: all of 0 .. p).
    scores = scale * (q . latent + q_turned . turned key)
    out = softmax(scores) @ latents

Before this op, the queries are multiplied by the matrices that would make keys from latents (the op head_linear). After
it, the result is multiplied by the matrices that make values from latents. So every row, of a prompt or of an answer,
is computed by the same arithmetic, and no key or value of a head is ever made.

Implementations use the online softmax over fixed tiles of positions, see attention.py. Latents in int8 and int4 pages
are widened to float32 first: both products are of floats in every format.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.attention import LOG2_E, weights_of
from twostroke.ops.attention.kv_pages import latents_seen
from twostroke.ops.cases import grid
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, Cache, LatentKV, Sequences, Value


def reference(
    out: F32Array, q: F32Array, q_turned: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float, window: int = 0
) -> None:
    whole = scaled_queries(q, q_turned, scale)
    for row, seen in latents_seen(layer, batch, window):
        out[row] = attended(whole[row], seen, layer.value_dim)


def scaled_queries(q: F32Array, q_turned: F32Array, scale: float) -> F32Array:
    """Returns both parts of the queries together, (T, H, L + R), multiplied by scale * log2(e): the softmax then uses
    exp2."""
    found: F32Array = np.concatenate((q, q_turned), axis=-1) * (np.float32(scale) * LOG2_E)
    return found


def attended(queries: F32Array, seen: F32Array, value_dim: int, sinks: F32Array | None = None) -> F32Array:
    """Returns the attention output (H, L) of one row. queries: (H, L + R), from scaled_queries. seen: (positions, L +
    R), the vectors that the row sees. sinks: (H,), scores that add to the softmax's divisor alone."""
    weights, total = weights_of(queries @ seen.T, sinks)
    found: F32Array = weights @ seen[:, :value_dim] / total
    return found


@op
class LatentAttention(Op):
    """Softmax attention of the step's rows over their sequences' latents."""

    SHAPES = {"out": "T H L", "q": "T H L", "q_turned": "T H R", "layer": "1 * L"}
    CASES = (
        grid(1e-4, H=(1, 5, 16), L=(16, 64), R=(4, 8), scale=0.1, window=(0, 40)),
        grid(1e-4, H=3, L=512, R=64, scale=0.05, window=0),
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    q_turned: Value
    layer: Cache
    batch: Sequences
    scale: float
    window: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts attention over all visible positions."""
        return latent_cost(self.q, self.q_turned, self.out, formats)


def latent_cost(q: Value, q_turned: Value, out: Value, formats: StoredFormats, more_width: int = 0) -> OpCost:
    """Returns the cost of attention over latents. It has for each visible position and head 2 FLOPs for each number of
    the head and 2 for each number of the latent. Latents are read once for all heads. more_width: the columns of other
    operands that a row reads."""
    moved = q.width + q_turned.width + out.width
    return OpCost(
        per_row=Work(0, activation_bytes=4 * (moved + more_width)),
        per_pair=Work(2 * moved),
        per_position=Work(0, kv_bytes=formats.kv.latent_bytes(q.shape[1] + q_turned.shape[1])),
    )


def check_latent(op: str, q: Value, q_turned: Value, layer: Cache) -> LatentKV:
    """Returns the kind of the layer's pages. Raises TypeError for pages that hold no latents, and ValueError for
    queries whose size is not that of the stored vectors."""
    kind = layer.kind
    if not isinstance(kind, LatentKV):
        raise TypeError(f"{op} needs pages of latents")
    if q.shape[1] + q_turned.shape[1] != kind.head_dim:
        raise ValueError(f"queries of {q.shape[1]} and {q_turned.shape[1]} numbers do not fit {kind.head_dim}")
    return kind


def latent_attention(q: Value, q_turned: Value, layer: Cache, scale: float) -> Value:
    """Records the call and returns the output of each row over `layer`, a cache of latents. q (T, H, L): the part of
    the queries that is multiplied with latents (L,). q_turned (T, H, R): the part with rotary positions."""
    kind = check_latent(LatentAttention.NAME, q, q_turned, layer)
    out = q.fresh()
    q.trace.record(LatentAttention(out, q, q_turned, layer, SEQUENCES, scale, kind.window))
    return out
