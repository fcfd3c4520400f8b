"""attention: causal softmax attention of new positions over paged K and V, grouped heads, optional sliding window.

    out, q (T, H, D) float32, possibly strided with contiguous last two axes. Row r of sequence s at position p sees
    positions max(0, p - window + 1) .. p (window 0: all of 0 .. p). Query head h reads KV head h // (H / kv_heads).
    scores = scale * q . k; out = softmax(scores) @ v.

Implementations use the online softmax (Milakov and Gimelshein 2018; Dao et al. 2022) over fixed tiles of positions,
merged over fixed segments of positions, so no (T, T) matrix exists and one row's arithmetic depends on that row alone.
K's scales multiply scores, V's scales the softmax weights. The reference makes one row of scores at a time.

Knows: the contract, the reference, the cost. Must not know: implementations, why these pages.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.kv_pages import read_pages
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer
from twostroke.spec.formats import PAGE_TOKENS


def gather(layer: KVLayer, page_ids: np.ndarray, tokens: int) -> tuple[F32Array, F32Array]:
    """-> K and V (kv_heads, tokens, head_dim) float32 of the first `tokens` positions in `page_ids`."""
    keys, values = (part.transpose(1, 0, 2, 3) for part in read_pages(layer, page_ids))
    shape = (layer.kv_heads, -1, layer.head_dim)
    return keys.reshape(shape)[:, :tokens], values.reshape(shape)[:, :tokens]


def reference(out: F32Array, q: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float, window: int) -> None:
    """See the module."""
    heads_per_kv = q.shape[1] // layer.kv_heads
    for s in range(len(batch.context_tokens)):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        context = int(batch.context_tokens[s])
        pages = batch.page_table[s, : -(-context // PAGE_TOKENS)]
        keys, values = gather(layer, pages, context)
        for row in range(first, last):
            position = context - (last - row)
            begin = max(0, position - window + 1) if window else 0
            k = np.repeat(keys[:, begin : position + 1], heads_per_kv, axis=0)
            v = np.repeat(values[:, begin : position + 1], heads_per_kv, axis=0)
            scores = np.einsum("hd,hnd->hn", q[row], k) * np.float32(scale)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[row] = np.einsum("hn,hnd->hd", weights, v)


def visible_positions(batch: AttentionBatch, window: int) -> int:
    """Sum over rows of the positions each row sees."""
    total = 0
    for s, context in enumerate(batch.context_tokens.tolist()):
        rows = int(batch.row_starts[s + 1] - batch.row_starts[s])
        if window == 0:
            total += rows * (2 * context - rows + 1) // 2
        else:
            total += sum(min(window, position + 1) for position in range(context - rows, context))
    return total


def cost(out: F32Array, q: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float, window: int) -> Work:
    """4 FLOPs for each visible position, head and dimension; each sequence's K and V read once."""
    flops = 4 * visible_positions(batch, window) * q.shape[1] * q.shape[2]
    rows = np.diff(batch.row_starts)
    spans = np.minimum(batch.context_tokens, window + rows - 1) if window else batch.context_tokens
    kv_bytes = int(spans.sum()) * layer.kv_heads * layer.kind.token_bytes(layer.head_dim)
    return Work(flops, kv_bytes=kv_bytes, activation_bytes=8 * q.size)
