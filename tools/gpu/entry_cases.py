"""Calls of the ops of compressed entries, of mixed streams, and of experts by token, as cases.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tools.gpu.cases import OpCase, numbers
from tools.gpu.more_cases import ROWS, SLOTS, sequences

from twostroke.ops.attention.entries import entry_cache, write_entries
from twostroke.ops.operands import AttentionBatch, KVLayer, new_kv_layer
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

ENTRIES = ((64, 1, 24), (40, 4, 0), (300, 24, 0))
"""Numbers of an entry, positions that it stands for, the window."""
CONTEXTS, COUNTS = (40, 150, 600), (1, 7, 3)
"""Positions of the sequences of a step, and their rows."""
EACH = -(-max(CONTEXTS) // PAGE_TOKENS)
"""Pages of a sequence."""


def entry_cases() -> Iterator[OpCase]:
    """All of them."""
    for kind in KVKind:
        for dim, rate, window in ENTRIES:
            yield from _entries(kind, dim, rate, window)
    yield from _compressed()
    yield from _streams()
    yield from _experts()


def _layer(kind: KVKind, pages: int, dim: int, rate: int) -> KVLayer:
    numbers_of_position = entry_cache(dim, rate).head_dim
    return new_kv_layer(kind, pages, 1, numbers_of_position, numbers_of_position, is_latent=True)


def _table() -> np.ndarray:
    return np.random.default_rng(9).permutation(EACH * len(CONTEXTS)).astype(np.int32).reshape(len(CONTEXTS), EACH)


def _filled(kind: KVKind, dim: int, rate: int, table: np.ndarray) -> KVLayer:
    layer = _layer(kind, table.size, dim, rate)
    for index, context in enumerate(CONTEXTS):
        closing = np.arange(rate - 1, context, rate)
        rows = numbers(len(closing), dim, seed=10 + index)
        write_entries(layer, rows, table[index][closing // PAGE_TOKENS], closing % PAGE_TOKENS // rate)
    return layer


def _entries(kind: KVKind, dim: int, rate: int, window: int) -> Iterator[OpCase]:
    name, rows, heads, table = f"{kind.name.lower()}, {dim} for {rate}", sum(COUNTS), 3, _table()
    batch = AttentionBatch(np.cumsum([0, *COUNTS]).astype(np.int32), np.array(CONTEXTS, np.int32), table)
    positions, slots = np.arange(3, 33, dtype=np.int32), np.arange(3, 33, dtype=np.int32)
    yield OpCase("entry_write", name, (_layer(kind, 3, dim, rate), numbers(30, dim), slots, positions, rate))
    layer = _filled(kind, dim, rate, table)
    q, sinks = numbers(rows, heads, dim, seed=2), numbers(heads, seed=3)
    wide = np.zeros((rows, heads, dim + 2), np.float32)
    yield OpCase("entry_attention", f"{name}, begun", (wide, q, None, None, layer, batch, None, 0.1, rate, window))
    before, chosen = numbers(rows, heads, dim + 2, seed=4), np.full((rows, 40), -1, np.float32)
    before[:, :, dim + 1] = 1 + np.abs(before[:, :, dim + 1])
    for row in range(rows):
        some = np.sort(np.random.default_rng(row).permutation(60)[: 1 + 11 * row % 40])
        chosen[row, : len(some)] = some
    behind = (layer, batch, sinks, 0.1, rate, window)
    yield OpCase("entry_attention", f"{name}, chosen, ended", (np.zeros_like(q), q, chosen, before, *behind))
    weights = numbers(rows, heads, seed=5)
    yield OpCase("entry_select", name, (np.zeros((rows, 16), np.float32), q, weights, layer, batch, rate))


def _compressed() -> Iterator[OpCase]:
    dim, rate = 300, 4
    for series in (1, 2):
        state = numbers(5, series, 3, dim, seed=2)
        state[:, :, 1] = 1 + np.abs(state[:, :, 1])
        inputs = (numbers(ROWS, 2 * series * dim), numbers(rate * series * dim, seed=1), state.reshape(5, -1))
        out = np.zeros((ROWS, dim), np.float32)
        yield OpCase("compress", f"{series} series of {dim}", (out, *inputs, SLOTS, sequences(), rate))


def _streams() -> Iterator[OpCase]:
    for streams, rounds in ((4, 20), (8, 3)):
        whole = (2 + streams) * streams
        rest = (numbers(whole, seed=1), numbers(3, seed=2), streams, rounds, 1e-6)
        out, x = np.zeros((7, whole), np.float32), numbers(7, whole)
        yield OpCase("stream_shares", f"{streams} streams", (out, x, *rest))
    for made, read, width in ((1, 4, 300), (4, 4, 40)):
        weights, out = numbers(5, made * read, seed=1), np.zeros((5, made, width), np.float32)
        yield OpCase("weigh_streams", f"{made} of {read}", (out, numbers(5, read, width), weights))


def _experts() -> Iterator[OpCase]:
    experts, chosen, ids = 128, 6, np.array([0, 4, 4, 2, 1, 3, 0, 1, 2], np.int32)
    table = np.concatenate([np.random.default_rng(row).permutation(experts)[:chosen] for row in range(5)])
    for scores in range(3):
        out, logits = np.zeros((9, 2 * chosen), np.float32), numbers(9, experts)
        operands = (out, logits, ids, table.astype(np.float32), scores, 1e-20, 1.5)
        yield OpCase("route_by_token", f"{chosen} of {experts}, scores {scores}", operands)
