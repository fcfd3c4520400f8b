"""Calls of the ops of latents, adapters, weights that keep a file's codes, rows and RWKV, as cases.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tools.gpu.cases import FORMATS, OpCase, numbers
from tools.gpu.more_cases import COUNTS, ROWS, SLOTS, joined, sequences
from tools.gpu.stored_values import KINDS, random_values

from twostroke.ops.attention.kv_pages import write_latents
from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, new_kv_layer
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.stored_layout import pack_stored
from twostroke.types.spec.formats import (
    BF16,
    COLUMNS8,
    F32,
    PAGE_TOKENS,
    STORED_GROUP,
    KVKind,
    WeightFormat,
    WeightKind,
)
from twostroke.weights.packed.blobs import aligned_bytes

LATENTS = (((16, 8), (70, 1, 130), (3, 1, 66)), ((512, 64), (65,), (2,)))
"""A latent and the turned key after it, tokens of each sequence, its rows in the step."""
RANKS = (8, 5, 16, 0)
ADAPTERS = np.array([0, 0, 2, -1, *[1] * 17, -1, 3, 3, 2], np.int32)


def other_cases() -> Iterator[OpCase]:
    """All of them."""
    for kind in KVKind:
        for sizes, contexts, counts in LATENTS:
            yield from _latents(kind, sizes, contexts, counts)
    for weight_format in FORMATS:
        bank = joined([pack_weight(numbers(70, 40, seed=30 + i), weight_format) for i in range(3)])
        operands = (np.zeros((9, 3, 70), np.float32), numbers(9, 3, 40), bank)
        yield OpCase("head_linear", weight_format.kind.name.lower(), operands)
    for stored_kind in KINDS:
        yield from _stored(stored_kind)
    for weight_format in (F32, BF16, COLUMNS8):
        yield from _adapters(weight_format)
    yield from _rows()
    yield from _rwkv()


def _latents(kind: KVKind, sizes: tuple[int, int], contexts: Sequence[int], counts: Sequence[int]) -> Iterator[OpCase]:
    latent, turned = sizes
    name, rows, each = f"{kind.name.lower()}, {latent} and {turned}", sum(counts), -(-max(contexts) // PAGE_TOKENS)
    table = np.random.default_rng(9).permutation(each * len(contexts)).astype(np.int32).reshape(len(contexts), each)
    batch = AttentionBatch(np.cumsum([0, *counts]).astype(np.int32), np.array(contexts, np.int32), table)
    layer = _filled(kind, sizes, contexts, table)
    slots = np.random.default_rng(3).permutation(PAGE_TOKENS)[:11].astype(np.int32)
    empty = new_kv_layer(kind, 2, 1, latent + turned, latent, is_latent=True)
    yield OpCase("latent_write", name, (empty, numbers(11, latent + turned), slots))
    q, keys = numbers(rows, 3, latent, seed=2), numbers(rows, 3, turned, seed=3)
    for window in (0, 40):
        yield OpCase("latent_attention", f"{name}, {window}", (np.zeros_like(q), q, keys, layer, batch, 0.1, window))
    chosen = np.full((rows, 20), -1, np.float32)
    positions = [c - n + i for c, n in zip(contexts, counts, strict=True) for i in range(n)]
    for row, position in enumerate(positions):
        some = np.sort(np.random.default_rng(row).permutation(position + 1)[:20])
        chosen[row, : len(some)] = some
    yield OpCase("chosen_latent_attention", name, (np.zeros_like(q), q, keys, chosen, layer, batch, 0.1))
    whole, weights = numbers(rows, 4, latent + turned, seed=4), numbers(rows, 4, seed=5)
    yield OpCase("index_select", name, (np.zeros((rows, 16), np.float32), whole, weights, layer, batch))


def _filled(kind: KVKind, sizes: tuple[int, int], contexts: Sequence[int], table: np.ndarray) -> KVLayer:
    layer = new_kv_layer(kind, table.size, 1, sum(sizes), sizes[0], is_latent=True)
    for index, context in enumerate(contexts):
        places = np.arange(context, dtype=np.int32)
        rows = numbers(context, sum(sizes), seed=10 + index)
        write_latents(layer, rows, table[index][places // PAGE_TOKENS], places % PAGE_TOKENS)
    return layer


def _packed(kind: WeightKind, rows: int, columns: int, seed: int = 0) -> PackedWeight:
    kept = WeightFormat(kind, STORED_GROUP)
    content = pack_stored(random_values(kind, rows, columns, seed), kept)
    data = aligned_bytes(content.size)
    data[:] = content
    return PackedWeight(kept, rows, columns, data)


def _stored(kind: WeightKind) -> Iterator[OpCase]:
    name, weight, ids = kind.name.lower(), _packed(kind, 66, 768), np.array([0, 65, 63, 64], np.int32)
    yield OpCase("linear", f"{name} 66 x 768, 3 rows", (np.zeros((3, 66), np.float32), numbers(3, 768), weight))
    yield OpCase("embed", name, (np.zeros((4, 768), np.float32), weight, ids))
    gate_up = joined([_packed(kind, 512, 256, seed) for seed in range(3)])
    down = joined([_packed(kind, 256, 256, 9 + seed) for seed in range(3)])
    routes = np.concatenate((np.abs(numbers(3, 2)), np.array([[0, 1], [2, 0], [1, 2]], np.float32)), axis=1)
    room = tuple(np.zeros((3, size), np.float32) for size in (256, 256, 2))
    yield OpCase(
        "experts", f"{name}, 2 of 3", (np.zeros((3, 256), np.float32), numbers(3, 256), routes, gate_up, down, *room)
    )


def _adapters(weight_format: WeightFormat) -> Iterator[OpCase]:
    columns, rows, first, room = 64, 96, 3, 16
    banks = []
    for size in (columns, rows):
        matrices = [numbers(size, room, seed=40 + i) for i in range(len(RANKS))]
        for matrix, rank in zip(matrices, RANKS, strict=True):
            matrix[:, rank:] = 0
        banks.append(joined([pack_weight(matrix, weight_format) for matrix in matrices]))
    count, width = len(ADAPTERS), rows + first + 2
    out, product, x = np.zeros((count, width), np.float32), numbers(count, width), numbers(count, columns)
    behind = (np.array(RANKS, np.float32), ADAPTERS, np.zeros((count, room), np.float32), first)
    yield OpCase("low_rank", weight_format.kind.name.lower(), (out, product, x, *banks, *behind))


def _rows() -> Iterator[OpCase]:
    for width in (40, 300):
        x, like = numbers(7, width), numbers(7, width, seed=1)
        order = np.random.default_rng(width).permutation(width).astype(np.float32)
        yield OpCase("take_columns", f"{width}", (np.zeros_like(x), x, order))
        yield OpCase("gaussian_cut", f"{width}", (x.copy(), 1.2))
        yield OpCase("match_rms", f"{width}", (x.copy(), like, 1e-5))
        yield OpCase("round_rows", f"{width}", (np.zeros_like(x), x))
        heads = x.reshape(len(x), 1, -1)
        yield OpCase("rotate_heads", f"{width}", (np.zeros_like(heads), heads, 1))
        yield OpCase("scale_columns", f"{width}", (x.copy(), numbers(width, seed=2)))
        yield OpCase("xielu", f"{width}", (3 * x, np.array([0.3, -0.2, 0.5, -1e-6], np.float32)))
        base, read, weights = numbers(5, 4, width), numbers(5, 3, width, seed=1), numbers(5, 12, seed=2)
        yield OpCase("mix_streams", f"{width}", (np.zeros_like(base), base, read, weights, 1.0))


def _rwkv() -> Iterator[OpCase]:
    ways, width, slots = 5, 40, len(COUNTS) + 1
    out, x, state = np.zeros((ROWS, ways * width), np.float32), numbers(ROWS, width), numbers(slots, width, seed=2)
    yield OpCase("token_shift", "5 ways", (out, x, numbers(ways * width, seed=1), state, SLOTS, sequences()))
    k, v, first = 3 * numbers(ROWS, width), numbers(ROWS, width, seed=1), numbers(width, seed=2)
    held = np.abs(numbers(slots, 3 * width, seed=4))
    operands = (np.zeros_like(k), k, v, first, -np.exp(numbers(width, seed=3)), held, SLOTS, sequences())
    yield OpCase("wkv4", f"{width} channels", operands)
    q, k, v = (numbers(ROWS, 2, size, seed=seed) for seed, size in enumerate((20, 20, 130)))
    gates, held = [3 * numbers(ROWS, 2, seed=seed) for seed in (3, 4)], numbers(slots, 2 * (20 * 130 + 21), seed=5)
    yield OpCase("mlstm", "2 heads", (np.zeros_like(v), q, k, v, *gates, held, SLOTS, sequences(), 1e-6))
    for heads, size in ((2, 20), (1, 130)):
        r, w, k, v, a = (numbers(ROWS, heads, size, seed=seed) for seed in range(5))
        vectors = [numbers(heads * size, seed=5 + seed) for seed in range(5)]
        kept, behind = numbers(slots, heads * size * size, seed=11), (SLOTS, sequences(), 1e-5)
        yield OpCase("wkv6", f"{heads} x {size}", (np.zeros_like(v), r, w, k, v, *vectors[:3], kept, *behind))
        yield OpCase("wkv7", f"{heads} x {size}", (np.zeros_like(v), r, w, k, v, a, *vectors, kept.copy(), *behind))
