"""attention: softmax attention of new positions over paged K and V, grouped heads, optional sliding window.

    q (T, H, D), out (T, H, V) float32, possibly strided with contiguous last two axes; D and V are the head sizes of K
    and of V. Row r of sequence s at position p sees positions max(0, p - window + 1) .. p (window 0: all of 0 .. p;
    below 0: from the last multiple of -window on, Llama 4), and the next `ahead` positions as far as the sequence goes.
    `ahead` is 0 for causal attention. Query head h reads KV head h // (H / kv_heads).
    scores = scale * q . k
    scores = soft_cap * tanh(scores / soft_cap)          where soft_cap is above 0 (Gemma 2)
    scores += slopes[h] * (position of k - p)            where slopes (H,) are given (alibi; Press et al. 2022)
    out = softmax(scores) @ v; where sinks (H,) are given (gpt-oss), the sum of the softmax also has exp(sinks[h]), a
    score without a value.

A page that no row of its sequence sees any more was given back. Its entry in the page table is invalid and is never
read.

Implementations use the online softmax (Milakov and Gimelshein 2018; Dao et al. 2022) over fixed tiles of positions,
merged over fixed segments of positions, so no (T, T) matrix exists and one row's arithmetic depends on that row alone.
The reference makes one row of scores at a time.

With int8 and int4 pages both products are sums of whole numbers. A row's query is rounded to bytes: -127 .. 127 stand
for -m .. m, where m is its largest magnitude. A softmax weight times its V's scale is rounded within its tile of 64
positions: -16383 .. 16383 stand for -m .. m. This m is the row's largest weight in the tile, times the largest scale
that the row sees in the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.kv_pages import first_seen, read_pages, read_value_integers, seen_pages
from twostroke.ops.cases import PAGES, grid, times
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, Cache, LatentKV, PagedKV, Sequences, Value, Vector
from twostroke.types.spec.formats import PAGE_TOKENS

TILE_TOKENS = 4 * PAGE_TOKENS
LARGEST_BYTE, LARGEST_WHOLE = np.float32(127), np.float32(16383)
SMALLEST_SCALED = np.float32(2.0**-112)
"""The smallest magnitude by which `_rounded` divides. A smaller magnitude is replaced by it, so that its inverse is
finite."""
LOG2_E = np.float32(1.44269504088896341)


def gather(layer: KVLayer, page_ids: np.ndarray, tokens: int) -> tuple[F32Array, F32Array]:
    """Returns K (kv_heads, tokens, head_dim) and V (kv_heads, tokens, value_dim) of the first `tokens` positions."""
    keys, values = (part.transpose(1, 0, 2, 3) for part in read_pages(layer, page_ids))
    found = (part.reshape(layer.kv_heads, -1, part.shape[-1])[:, :tokens] for part in (keys, values))
    return next(found), next(found)


def reference(call: CallArrays) -> None:
    out, q, layer, batch, scale, window, soft_cap, sinks, slopes, ahead = call
    rule = ScoreRule(scale, soft_cap, sinks, slopes)
    attend(out, q, layer, batch, rule, window, lambda _, position: position + 1 + ahead)


class ScoreRule(NamedTuple):
    """How scores follow from products of q and k: scale * product, capped by soft_cap (0 for no cap), plus slopes (H,)
    times the distance (alibi). sinks (H,): one more score of each head in the softmax."""

    scale: float
    soft_cap: float = 0.0
    sinks: F32Array | None = None
    slopes: F32Array | None = None


def attend(
    out: F32Array,
    q: F32Array,
    layer: KVLayer,
    batch: AttentionBatch,
    rule: ScoreRule,
    window: int,
    end_of: Callable[[int, int], int],
) -> None:
    """Computes the attention output of all rows in NumPy, as the module defines it, and writes it into `out`.
    end_of(row, position): returns one after the last position that the row may see."""
    scale, soft_cap, sinks, slopes = rule
    heads_per_kv = q.shape[1] // layer.kv_heads
    for s in range(len(batch.context_tokens)):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        context = int(batch.context_tokens[s])
        pages = seen_pages(batch.page_table[s, : -(-context // PAGE_TOKENS)], context - (last - first), window)
        keys, values = gather(layer, pages, context)[0], gather_values(layer, pages, context)
        for row in range(first, last):
            position = context - (last - row)
            begin, end = first_seen(position, window), min(end_of(row, position), context)
            k = np.repeat(keys[:, begin:end], heads_per_kv, axis=0)
            scores = np.einsum("hd,hnd->hn", scaled_query(layer, q[row], scale), k)
            if soft_cap > 0:
                scores = np.tanh(scores / (soft_cap * LOG2_E)) * np.float32(soft_cap * LOG2_E)
            if slopes is not None:
                scores += (slopes * LOG2_E)[:, None] * np.arange(begin - position, end - position, dtype=np.float32)
            out[row] = softened(scores, values, (begin, end), sinks)


def gather_values(layer: KVLayer, page_ids: np.ndarray, tokens: int) -> tuple[F32Array, F32Array | None]:
    """Returns V of the first `tokens` positions, (kv_heads, tokens, value_dim), and its scales. V of int8 and int4
    pages is whole numbers with scales (kv_heads, tokens). V of float pages has None for scales."""
    if layer.kind.is_integer:
        return _gather_integers(layer, page_ids, tokens)
    return gather(layer, page_ids, tokens)[1], None


def weights_of(scores: F32Array, sinks: F32Array | None = None) -> tuple[F32Array, F32Array]:
    """Returns the softmax weights (H, N) of one row before the division, and their divisor (H, 1). scores: (H, N),
    multiplied by log2(e). sinks: (H,), scores that add to the divisor alone, not multiplied by log2(e)."""
    peaks = scores.max(axis=-1, keepdims=True)
    weights: F32Array = np.exp2(scores - peaks)
    total: F32Array = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        with np.errstate(over="ignore"):  # with an infinite sink all weights are zero
            total = total + np.exp2((sinks * LOG2_E)[:, None] - peaks)
    return weights, total


def softened(
    scores: F32Array,
    values: tuple[F32Array, F32Array | None],
    seen: tuple[int, int],
    sinks: F32Array | None = None,
) -> F32Array:
    """Returns the softmax-weighted sum of V of each head, for one row. scores: (H, N), multiplied by log2(e). values:
    the result of gather_values. seen: the position of the first score, and one after the position of the last. sinks
    (H,): one more score of each head, without a value, not multiplied by log2(e); None for none."""
    begin, end = seen
    group = len(scores) // len(values[0])
    weights, total = weights_of(scores, sinks)
    v = np.repeat(values[0][:, begin:end], group, axis=0)
    if values[1] is not None:
        weights = _rounded_in_tiles(weights, np.repeat(values[1][:, begin:end], group, axis=0), begin)
    found: F32Array = np.einsum("hn,hnd->hd", weights, v) / total
    return found


def _gather_integers(layer: KVLayer, page_ids: np.ndarray, tokens: int) -> tuple[F32Array, F32Array]:
    """Returns V as whole numbers (kv_heads, tokens, value_dim) and its scales (kv_heads, tokens)."""
    whole, scales = read_value_integers(layer, page_ids)
    whole = whole.transpose(1, 0, 2, 3).reshape(layer.kv_heads, -1, layer.value_dim)
    return whole[:, :tokens], scales.transpose(1, 0, 2).reshape(layer.kv_heads, -1)[:, :tokens]


def scaled_query(layer: KVLayer, q: F32Array, scale: float) -> F32Array:
    """Returns the queries (H, D) multiplied by scale * log2(e): the softmax then uses exp2. For integer pages they are
    rounded to bytes too."""
    scaled: F32Array = q * (np.float32(scale) * LOG2_E)
    if not layer.kind.is_integer:
        return scaled
    return _rounded(scaled, np.abs(scaled).max(axis=-1, keepdims=True), LARGEST_BYTE)


def _rounded(numbers: F32Array, largest: F32Array, steps: np.float32) -> F32Array:
    """Returns each number rounded to the nearest multiple of largest / steps."""
    kept = np.maximum(largest, SMALLEST_SCALED)
    # In double precision the product is exact, so there is one rounding, as in a fused multiply-add.
    found: F32Array = np.rint(numbers.astype(np.float64) * (steps / kept)).astype(np.float32)
    found *= kept * (np.float32(1) / steps)
    return found


def _rounded_in_tiles(weights: F32Array, scales: F32Array, begin: int) -> F32Array:
    """Returns weights * scales (H, N), rounded to multiples of m / 16383 as in kernels for int8 and int4 pages. For
    each head and each tile of 64 positions, m is the largest weight times the largest scale. begin: the position of the
    first column."""
    found = weights * scales
    for start in range(begin - begin % TILE_TOKENS, begin + weights.shape[-1], TILE_TOKENS):
        tile = np.s_[:, max(0, start - begin) : start + TILE_TOKENS - begin]
        largest = weights[tile].max(axis=-1, keepdims=True) * np.abs(scales[tile]).max(axis=-1, keepdims=True)
        found[tile] = _rounded(found[tile], largest, LARGEST_WHOLE)
    return found


_CASES: tuple[dict[str, object], ...] = (
    {"G": (1, 2), "Q": (1, 3), "H": "G Q", "D": (15, 32, 64), "window": (0, 20, -40)},
    {"G": 1, "H": (9, 17), "D": 24, "window": 0},
    {"G": 1, "H": 2, "D": (72, 96, 112, 144), "window": 0},
    {"G": 2, "H": 4, "D": (48, 17), "V": (33, 64), "window": 0},
    {"G": 2, "H": 4, "D": (20, 32), "window": -40, "ahead": 9},
    {
        **{"G": 2, "H": 6, "D": (20, 33), "window": (0, 40)},
        **{"soft_cap": 5.0, "sinks": (None, times(1)), "slopes": (None, times(0.1))},
    },
)
"""The sizes, windows and options of the op's test cases. Each case is tested with f32, bf16, int8 and int4 pages."""


@op
class Attention(Op):
    """Softmax attention of the step's rows over their sequences' pages of K and V."""

    SHAPES = {
        "out": "T H V",
        "q": "T H D",
        "layer": "* D V",
        "sinks": "H",
        "slopes": "H",
    }
    CASES = tuple(
        grid(tolerance, **{"kinds": kinds, "scale": 0.2, "V": "D", "sinks": None, "slopes": None} | rest)
        for tolerance, kinds in PAGES
        for rest in _CASES
    )
    PART = OpPart.ATTENTION
    BY_HEADS = True

    out: Value
    q: Value
    layer: Cache
    batch: Sequences
    scale: float
    window: int
    soft_cap: float = 0.0
    sinks: Vector | None = None
    slopes: Vector | None = None
    ahead: int = 0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each visible position, head and dimension of K, and 2 for each dimension of V. Each
        sequence's K and V are read once."""
        kind = self.layer.kind
        if not isinstance(kind, PagedKV):
            raise TypeError("attention needs pages")
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (self.q.width + self.out.width)),
            per_pair=Work(2 * (self.q.width + self.out.width)),
            per_position=Work(0, kv_bytes=kind.token_bytes(formats.kv)),
        )


def attention(
    q: Value,
    layer: Cache,
    scale: float,
    *,
    soft_cap: float = 0.0,
    sinks: Vector | None = None,
    slopes: Vector | None = None,
) -> Value:
    """Records the call and returns the output of each row of q (T, H, D) over `layer`. The layer's kind gives the
    window and how far a row sees ahead. soft_cap: the cap of the scores, 0 for none."""
    if not isinstance(layer.kind, PagedKV) or isinstance(layer.kind, LatentKV):
        raise TypeError("attention needs pages of K and V")
    kind = layer.kind
    out = q.fresh(q.shape[0], kind.value_dim)
    window = -kind.window if kind.chunked else kind.window
    q.trace.record(Attention(out, q, layer, SEQUENCES, scale, window, soft_cap, sinks, slopes, kind.ahead))
    return out
