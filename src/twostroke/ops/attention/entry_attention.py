"""entry_attention: softmax attention of new positions over entries: compressed KV (DeepSeek-AI 2026).

    q (T, H, D) float32, possibly strided with contiguous last two axes. An entry (D,) stands for `rate` positions, and
    is key and value of all heads (entries.py). The row at position p sees entries 0 .. (p + 1) // rate - 1 of its
    sequence; where `window` is not 0, it sees only the last `window` of these. Where `chosen` (T, K) is
    given, it sees the entries whose numbers are in its row of `chosen`: in rising order, then -1.
    scores = scale * (q . entry);  out (T, H, D) float32 = softmax(scores) @ entries

One softmax may go over two caches, with one call for each: the first call has no `before`. The first call returns (T,
H, D + 2). For each head these are the sum of entries times weights, the largest score times log2(e), and the sum of the
weights. A score's weight is exp(score - largest score). The second call takes this result as `before`, and continues
the same softmax. sinks (H,): one score for each head without an entry. The call that ends the softmax adds it (Xiao et
al. 2023).

One row's result depends on that row alone. Entries that a row does not see are not read for that row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.attention import LOG2_E
from twostroke.ops.attention.entries import entries_seen
from twostroke.ops.cases import Filled, Sizes, grid, rising, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, Cache, LatentKV, Sequences, Value, Vector

BESIDE = 2
"""How many numbers follow the weighted sum of each head in a result that a second call continues: the largest score and
the sum of weights."""
LOWEST = np.float32(-3.0e38)
"""The value that the running maximum of a head's scores has before the first entry (instead of -inf)."""


def reference(call: CallArrays) -> None:
    out, q, chosen, before, layer, batch, sinks, scale, rate, window = call
    dim = q.shape[2]
    for row, first, seen in entries_seen(layer, batch, dim, rate, window):
        if chosen is not None:
            named = chosen[row].astype(np.int64)
            seen = seen[named[(named >= first) & (named < first + len(seen))] - first]
        scores = q[row] @ seen.T * (np.float32(scale) * LOG2_E)
        peak = np.full(len(q[row]), LOWEST) if before is None else before[row, :, dim]
        now = np.maximum(peak, scores.max(axis=1, initial=LOWEST))
        weights, kept = np.exp2(scores - now[:, None]), np.exp2(np.maximum(peak - now, -126))
        total, made = weights.sum(axis=1), weights @ seen
        if before is not None:
            total, made = total + kept * before[row, :, dim + 1], made + kept[:, None] * before[row, :, :dim]
        if out.shape[2] > dim:
            out[row, :, :dim], out[row, :, dim], out[row, :, dim + 1] = made, now, total
            continue
        if sinks is not None:
            highest = np.maximum(now, sinks * LOG2_E)
            made, total = made * np.exp2(now - highest)[:, None], total * np.exp2(now - highest)
            total = total + np.exp2(sinks * LOG2_E - highest)
        out[row] = made / total[:, None]


def _begun(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> F32Array:
    """Makes random test operands `before` (T, H, D + 2), the result of an earlier call. The last number, a sum of
    weights, is above 0."""
    found = random.standard_normal(shape, dtype=np.float32)
    found[..., -1] = 1 + np.abs(found[..., -1])
    return found


@op
class EntryAttention(Op):
    """Softmax attention of the step's rows over compressed KV: entries, each the key and value of `rate` positions."""

    SHAPES = {
        "out": "T H *",
        "q": "T H D",
        "chosen": "T K",
        "before": "T H *",
        "layer": "1 * *",
        "sinks": "H",
    }
    CASES = tuple(
        grid(
            1e-4, H=(1, 3), D=dim, K=9, scale=0.1, rate=rate, window=window, chosen=(None, rising(20)),
            **({"out": f"{dim + 2}", "before": None, "sinks": None} if begins else
               {"out": "D", "before": (None, Filled(f"{dim + 2}", _begun)), "sinks": (None, times(1))}),
        )
        for dim in (20, 64)
        for rate, window in ((1, 24), (1, 700), (4, 0), (24, 0))
        for begins in (True, False)
    )  # fmt: skip
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    chosen: Value | None
    before: Value | None
    layer: Cache
    batch: Sequences
    sinks: Vector | None
    scale: float
    rate: int
    window: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 4 FLOPs for each number of each query head and each visible entry. There is one entry for `rate`
        positions, so a position counts 1 / rate of this. With `chosen`, each row counts the largest number of entries
        that it may choose."""
        dim = self.q.shape[1]
        moved = 4 * (self.q.width + self.out.width + (self.before.width if self.before else 0))
        each, stored = 4 * self.q.width, formats.kv.latent_bytes(dim)
        if self.chosen is not None:
            count = self.chosen.width
            return OpCost(per_row=Work(each * count, kv_bytes=stored * count, activation_bytes=moved + 4 * count))
        return OpCost(
            per_row=Work(0, activation_bytes=moved),
            per_pair=Work(each // self.rate),
            per_position=Work(0, kv_bytes=stored // self.rate),
        )


@dataclass(frozen=True, slots=True)
class EntriesSeen:
    """A cache of entries, and which of them a row sees. Each entry stands for `rate` positions. The row sees the last
    `window` entries, or all for 0."""

    layer: Cache
    rate: int
    window: int = 0


def entry_attention(
    q: Value,
    near: EntriesSeen,
    far: EntriesSeen | None,
    chosen: Value | None,
    sinks: Vector,
    scale: float,
) -> Value:
    """Records the calls and returns the output of each row of q (T, H, D). One softmax goes over two caches: the
    entries of `near`, and those entries of `far` whose numbers are in `chosen`."""
    heads, dim = q.shape
    made: Value | None = None
    for cache in (near, far):
        if cache is None:
            continue
        if not isinstance(cache.layer.kind, LatentKV):
            raise TypeError("entry_attention needs pages of entries")
        ends = cache is far or far is None
        out = q.fresh(heads, dim if ends else dim + BESIDE)
        picked = chosen if cache is far else None
        last = sinks if ends else None
        sizes = (scale, cache.rate, cache.window)
        q.trace.record(EntryAttention(out, q, picked, made, cache.layer, SEQUENCES, last, *sizes))
        made = out
    if made is None:
        raise ValueError("entry_attention needs entries")
    return made
