"""Calls of single ops whose results on a device are compared with the CPU's, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, RopeTable, new_kv_layer
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.spec.formats import BF16, F32, PAGE_TOKENS, KVKind, WeightFormat, WeightKind

FORMATS = (F32, BF16, WeightFormat(WeightKind.INT8, 128), WeightFormat(WeightKind.INT4, 128))
SIZES = ((1, 1, 1), (65, 127, 5), (1024, 1024, 3), (256, 2048, 130))
"""The sizes of products: output features, input features, rows."""
ATTENTION = ((64, 33, 33, 0), (128, 1100, 2, 0), (40, 700, 5, 530), (256, 64, 1, 0))
"""The sizes of attention: dimensions of a head, positions, rows, window."""


@dataclass(frozen=True)
class OpCase:
    """One call. operands: the first is changed. words: what is special about it."""

    op: str
    words: str
    operands: tuple[Any, ...]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Gaussian float32, with some zeros and some large ones."""
    rng = np.random.default_rng([seed, *shape])
    found = rng.standard_normal(shape).astype(np.float32)
    found[rng.random(shape) < 0.02] = 0.0
    found[rng.random(shape) < 0.02] *= 40.0
    return found


def packed(rows: int, columns: int, weight_format: WeightFormat, biased: bool) -> PackedWeight:
    """A Gaussian matrix."""
    bias = numbers(rows, seed=3) if biased else None
    return pack_weight(numbers(rows, columns, seed=2), weight_format, bias)


def op_cases() -> Iterator[OpCase]:
    """All of them."""
    yield from _products()
    yield from _elements()
    for kind in KVKind:
        yield from _attention(kind)
        yield from _placed(kind)
    table = numbers(2 * 15 * 40, seed=2)
    yield OpCase("place_scores", "40 places", (np.zeros((9, 2, 40), np.float32), numbers(9, 2, 15), table))


def _products() -> Iterator[OpCase]:
    for weight_format in FORMATS:
        name = weight_format.kind.name.lower()
        for rows, columns, count in SIZES:
            weight, x = packed(rows, columns, weight_format, rows % 2 == 1), numbers(count, columns)
            words = f"{name} {rows} x {columns}, {count} rows"
            yield OpCase("linear", words, (np.zeros((count, rows), np.float32), x, weight))
            yield OpCase("linear_add", words, (numbers(count, rows, seed=5), x, weight))
            if rows % 2 == 0:
                yield OpCase("linear_silu", words, (np.zeros((count, rows // 2), np.float32), x, weight))
        yield from _extremes(weight_format)
        both, down = packed(300, 64, weight_format, False), packed(64, 150, weight_format, False)
        block = (numbers(7, 64, seed=1), numbers(7, 64), both, down, np.zeros((7, 150), np.float32))
        yield OpCase("feed_forward", name, block)
        table = packed(300, 200, weight_format, False)
        ids = np.array([0, 299, 63, 64], np.int32)
        yield OpCase("embed", name, (np.zeros((4, 200), np.float32), table, ids))


def _extremes(weight_format: WeightFormat) -> Iterator[OpCase]:
    """The largest sums of a group, of both signs; scales that are NaN and infinite; rows without a largest number."""
    rows, columns = 66, 512
    signs = np.where(np.arange(rows * columns).reshape(rows, columns) // columns % 2, -1.0, 1.0).astype(np.float32)
    weight, name = pack_weight(signs, weight_format), weight_format.kind.name.lower()
    x = np.ones((6, columns), np.float32)
    x[1], x[2, 3], x[3, 3], x[4], x[5] = -1e30, np.nan, np.inf, 1e-42, 0.0
    yield OpCase("linear", f"{name}, largest sums", (np.zeros((6, rows), np.float32), x, weight))
    if weight.scales is not None:
        scales = weight.scales.copy()
        scales.reshape(-1)[:2] = np.array([np.nan, np.inf], np.float16).view(scales.dtype)
        broken = replace(weight, scales=scales)
        yield OpCase("linear", f"{name}, scales NaN and infinite", (np.zeros((6, rows), np.float32), x, broken))


def _elements() -> Iterator[OpCase]:
    for width in (17, 4096):
        x, weight, bias = numbers(9, width), numbers(width, seed=1), numbers(width, seed=2)
        yield OpCase("rms_norm", f"{width}", (np.zeros_like(x), x, weight, 1e-6))
        yield OpCase("layer_norm", f"{width}", (np.zeros_like(x), x, weight, bias, 1e-5))
        yield OpCase("add", f"{width}", (x.copy(), numbers(9, width, seed=4)))
        yield OpCase("scale", f"{width}", (x.copy(), 0.3))
        yield OpCase("soft_cap", f"{width}", (x.copy(), 30.0))
        yield OpCase("clamp", f"{width}", (x.copy(), 0.5))
        rows = np.array([8, 0, 8], np.int32)
        yield OpCase("gather_rows", f"{width}", (np.zeros((3, width), np.float32), x, rows))
        for activation in range(8):
            both = numbers(9, 2 * width, seed=6)
            yield OpCase("gate", f"{width}, activation {activation}", (np.zeros_like(x), both, activation, 0.0, 0.0))
            yield OpCase("activate", f"{width}, activation {activation}", (3 * x, activation))
            yield OpCase("multiply", f"{width}, activation {activation}", (np.zeros_like(x), x, 2 * x, activation))
    angles = numbers(64, 32)
    table, positions = RopeTable(np.cos(angles), np.sin(angles)), np.array([0, 63, 5], np.int32)
    yield OpCase("rope", "heads of 80, 64 rotated", (numbers(3, 4, 80), table, positions))
    yield OpCase("head_norm", "heads of 128", (numbers(5, 8, 128), numbers(128, seed=1), 1e-6))
    own = numbers(8 * 128, seed=2)
    yield OpCase("head_layer_norm", "heads of 128", (numbers(5, 8, 128), numbers(128, seed=1), own[:128], 1e-5))
    yield OpCase("head_layer_norm", "heads of 128, weights of each", (numbers(5, 8, 128), own, None, 1e-5))


def _attention(kind: KVKind) -> Iterator[OpCase]:
    for dim, tokens, rows, window in ATTENTION:
        name = f"{kind.name.lower()}, heads of {dim}"
        k, v = numbers(tokens, 2, dim, seed=1), numbers(tokens, 2, dim, seed=2)
        layer, table, slots = _pages(kind, dim, tokens)
        yield OpCase("kv_write", f"{name}, {tokens} rows", (layer, k, v, slots))
        batch = AttentionBatch(np.array([0, rows], np.int32), np.array([tokens], np.int32), table[None])
        q, out = numbers(rows, 6, dim, seed=7), np.zeros((rows, 6, dim), np.float32)
        for words, cap, sinks, slopes in (
            ("", 0.0, None, None),
            (", cap, sinks", 5.0, numbers(6, seed=8), None),
            (", slopes", 0.0, None, np.linspace(0.01, 0.5, 6, dtype=np.float32)),
        ):
            operands = (out, q, _written(kind, dim, tokens), batch, dim**-0.5, window, cap, sinks, slopes)
            yield OpCase("attention", f"{name}, {rows} of {tokens}, window {window}{words}", operands)


def _placed(kind: KVKind) -> Iterator[OpCase]:
    places, dim, tokens = 9, 20, 70
    place_of = np.floor(np.linspace(0, places - 0.01, 41)).astype(np.float32)
    _, table, _ = _pages(kind, dim, tokens)
    batch = AttentionBatch(np.array([0, tokens], np.int32), np.array([tokens], np.int32), table[None])
    q, out = numbers(tokens, 6, dim, seed=7), np.zeros((tokens, 6, dim), np.float32)
    beside = [numbers(tokens, 6, places, seed=4 + i) for i in range(2)]
    operands = (out, q, _written(kind, dim, tokens), batch, dim**-0.5, place_of, numbers(6 * places, seed=3), *beside)
    yield OpCase("placed_attention", f"{kind.name.lower()}, heads of {dim}", (*operands, ALL_AHEAD))


def _pages(kind: KVKind, dim: int, tokens: int) -> tuple[KVLayer, np.ndarray, np.ndarray]:
    count, positions = -(-tokens // PAGE_TOKENS), np.arange(tokens)
    table = np.random.default_rng(count).permutation(count + 2)[:count].astype(np.int32)
    slots = (table[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS).astype(np.int32)
    return new_kv_layer(kind, count + 2, 2, dim), table, slots


def _written(kind: KVKind, dim: int, tokens: int) -> KVLayer:
    from twostroke.ops.attention.kv_pages import write_rows

    layer, _, slots = _pages(kind, dim, tokens)
    k, v = numbers(tokens, 2, dim, seed=1), numbers(tokens, 2, dim, seed=2)
    write_rows(layer, k, v, slots // PAGE_TOKENS, slots % PAGE_TOKENS)
    return layer
