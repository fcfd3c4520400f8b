"""Attention over latents at every level: long contexts, all positions or chosen ones, and refused calls."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.ops.native import Answers, batch_of, normal, slots_of
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import (
    chosen_latent_attention,
    latent_attention,
    latent_write,
)
from twostroke.ops.attention.kv_pages import first_seen, read_latents
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer, new_kv_layer
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

SIZES = ((16, 8), (40, 4), (20, 6), (64, 64), (512, 64))
"""The sizes of a latent, and of the rotary key after it."""


def empty_layer(kind: KVKind, pages: int, latent: int, turned: int) -> KVLayer:
    """A layer in which every number, or its scale, is NaN."""
    layer = new_kv_layer(kind, pages, 1, latent + turned, latent, is_latent=True)
    layer.data.view(np.uint8)[...] = 0xFF
    return layer


@cache
def filled_layer(kind: KVKind, sizes: tuple[int, int], contexts: tuple[int, ...]) -> tuple[KVLayer, np.ndarray]:
    """A layer whose used positions are random, with rotary keys three times as large, and a scattered page table."""
    pages_each = -(-max(contexts) // PAGE_TOKENS)
    layer = empty_layer(kind, pages_each * len(contexts) + 1, *sizes)
    order = np.random.default_rng(9).permutation(layer.num_pages)[: pages_each * len(contexts)]
    table = np.ascontiguousarray(order.reshape(len(contexts), pages_each).astype(np.int32))
    for s, context in enumerate(contexts):
        rows = normal(context, sum(sizes), seed=10 + s)
        rows[:, sizes[0] :] *= 3
        latent_write.reference(layer, rows, slots_of(table[s], np.arange(context)))
    layer.data.flags.writeable = table.flags.writeable = False
    return layer, table


@cache
def queries(rows: int, heads: int, dim: int, seed: int) -> F32Array:
    """Queries (rows, heads, dim), as a view of an array with more heads."""
    q = normal(rows, heads + 1, dim, seed=seed)
    q.flags.writeable = False
    return q[:, :heads]


def seen(
    ops: CpuOps,
    q: F32Array,
    turned: F32Array,
    layer: KVLayer,
    batch: AttentionBatch,
    scale: float = 0.1,
    window: int = 0,
) -> F32Array:
    out = np.full((len(q), q.shape[1] + 1, q.shape[2]), 7, np.float32)
    ops.latent_attention(out[:, :-1], q, turned, layer, batch, scale, window)
    assert np.all(out[:, -1] == 7)
    return out[:, :-1]


@pytest.mark.parametrize("kind", KVKind)
def test_what_is_read_is_what_was_written(kind: KVKind) -> None:
    """The numbers are within a rounding of the latent, and of the rotary key, which has a scale of its own."""
    layer, rows = empty_layer(kind, 2, 40, 8), normal(32, 48)
    rows[:, 40:] *= 100
    latent_write.reference(layer, rows, np.arange(32, dtype=np.int32))
    error = np.abs(read_latents(layer, np.arange(2)).reshape(32, 48) - rows)
    step = {KVKind.F32: 0.0, KVKind.BF16: 2.0**-8, KVKind.INT8: 1 / 250, KVKind.INT4: 1 / 7.9}[kind]
    for part in (rows[:, :40], rows[:, 40:]):
        assert error[:, : part.shape[1]].max() <= step * np.abs(part).max() * 1.05
        error = error[:, 40:]


@cache
def answer(
    kind: KVKind, sizes: tuple[int, int], heads: int, contexts: tuple[int, ...], counts: tuple[int, ...], window: int
) -> F32Array:
    layer, table = filled_layer(kind, sizes, contexts)
    q, turned = (queries(sum(counts), heads, dim, 90 + place) for place, dim in enumerate(sizes))
    out = np.empty((*q.shape[:2], sizes[0]), np.float32)
    latent_attention.reference(out, q, turned, layer, batch_of(contexts, counts, table), 0.1, window)
    return out


@pytest.mark.parametrize(("kind", "sizes", "heads"), itertools.product(KVKind, SIZES, (1, 5, 16)))
def test_latent_attention(ops: CpuOps, kind: KVKind, sizes: tuple[int, int], heads: int) -> None:
    """The result is compared with the reference. A row of a chunk has the bits that it has alone, like one that
    decodes. With 5 heads there is a window, and the entries of pages before it have no meaning."""
    contexts, counts, window = (1, 40, 150, 600), (1, 1, 70, 9), 70 if heads == 5 else 0
    layer, table = filled_layer(kind, sizes, contexts)
    table = table.copy()
    for s, (context, count) in enumerate(zip(contexts, counts, strict=True)):
        table[s, : first_seen(context - count, window) // PAGE_TOKENS] = -1
    batch = batch_of(contexts, counts, table)
    q, turned = (queries(sum(counts), heads, dim, 90 + place) for place, dim in enumerate(sizes))
    found = seen(ops, q, turned, layer, batch, window=window)
    if Answers.checked:
        expected = answer(kind, sizes, heads, contexts, counts, window)
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-4)
    for s, row in ((1, 1), (2, 2), (2, 60), (3, 74), (3, 80)):
        position = contexts[s] - (int(batch.row_starts[s + 1]) - row)
        one = batch_of((position + 1,), (1,), table[s : s + 1])
        part = slice(row, row + 1)
        assert np.array_equal(seen(ops, q[part], turned[part], layer, one, window=window)[0], found[row])


def test_many_heads_and_many_rows(ops: CpuOps) -> None:
    """128 heads are more rows than a block takes; 40 sequences have one row each."""
    layer, table = filled_layer(KVKind.BF16, (64, 8), (530,))
    q, turned = queries(40, 128, 64, 3), queries(40, 128, 8, 4)
    chunk = seen(ops, q, turned, layer, batch_of((530,), (40,), table))
    many = AttentionBatch(np.arange(41, dtype=np.int32), np.arange(491, 531, dtype=np.int32), table[[0] * 40])
    assert np.array_equal(seen(ops, q, turned, layer, many), chunk)


@pytest.mark.parametrize("kind", KVKind)
def test_a_latent_that_is_not_a_number_is_seen_by_those_who_see_its_position(ops: CpuOps, kind: KVKind) -> None:
    layer, table = filled_layer(kind, (16, 8), (40,))
    layer = replace(layer, data=layer.data.copy())
    broken = np.full((1, 24), np.nan, np.float32)
    ops.latent_write(layer, broken, slots_of(table[0], np.array([30])))
    found = seen(ops, queries(40, 3, 16, 5), queries(40, 3, 8, 6), layer, batch_of((40,), (40,), table))
    assert np.isfinite(found[:30]).all() and np.isnan(found[30:]).all()


def test_what_does_not_fit_is_refused(ops: CpuOps) -> None:
    layer, table = filled_layer(KVKind.F32, (16, 8), (40,))
    batch, q, turned = batch_of((40,), (1,), table), normal(1, 2, 16), normal(1, 2, 8)
    plain = new_kv_layer(KVKind.F32, 4, 1, 24, 16)
    calls = [
        (q, normal(1, 2, 7), layer, batch),
        (q, normal(1, 3, 8), layer, batch),
        (normal(1, 2, 15), turned, layer, batch),
        (q, turned, plain, batch),
        (q, turned, layer, replace(batch, page_table=np.full_like(batch.page_table, -1))),
    ]
    for call in calls:
        with pytest.raises(BackendError):
            seen(ops, *call)
    with pytest.raises(BackendError):
        ops.attention(np.empty((1, 2, 16), np.float32), normal(1, 2, 24), layer, batch, 1.0, 0)
    for slot in (-1, layer.num_pages * PAGE_TOKENS):
        with pytest.raises(BackendError):
            ops.latent_write(layer, normal(1, 24), np.array([slot], np.int32))


def whole_numbers(*shape: int, seed: int) -> F32Array:
    """Small whole numbers: their scores are exact, and many are equal."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize(("kind", "heads"), itertools.product(KVKind, (3, 20)))
def test_attention_to_chosen_positions(ops: CpuOps, kind: KVKind, heads: int) -> None:
    """The result is compared with the reference. Where all positions are chosen, it is that of plain attention."""
    sizes, contexts, counts = (40, 4), (1, 40, 150, 600), (1, 1, 70, 9)
    layer, table = filled_layer(kind, sizes, contexts)
    batch, rng = batch_of(contexts, counts, table), np.random.default_rng(6)
    q, turned = (queries(81, heads, dim, 90 + place) for place, dim in enumerate(sizes))
    chosen, every = np.full((81, 30), -1, np.float32), np.full((81, 600), -1, np.float32)
    for s, context in enumerate(contexts):
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            seen_here = context - (int(batch.row_starts[s + 1]) - row) + 1
            some = np.sort(rng.permutation(seen_here)[:30])
            chosen[row, : len(some)], every[row, :seen_here] = some, np.arange(seen_here)
    found, whole, law = (np.empty((81, heads, sizes[0]), np.float32) for _ in range(3))
    ops.chosen_latent_attention(found, q, turned, chosen, layer, batch, 0.1)
    if Answers.checked:
        chosen_latent_attention.ChosenLatentAttention.reference(law, q, turned, chosen, layer, batch, 0.1)
        np.testing.assert_allclose(found, law, atol=2e-5, rtol=2e-4)
    ops.chosen_latent_attention(whole, q, turned, every, layer, batch, 0.1)
    assert np.array_equal(whole, seen(ops, q, turned, layer, batch))
    for s, row in ((1, 1), (2, 60), (3, 74)):
        position, out = contexts[s] - (int(batch.row_starts[s + 1]) - row), np.empty((1, *found.shape[1:]), np.float32)
        one, part = batch_of((position + 1,), (1,), table[s : s + 1]), slice(row, row + 1)
        ops.chosen_latent_attention(out, q[part], turned[part], chosen[part], layer, one, 0.1)
        assert np.array_equal(out[0], found[row])


@pytest.mark.parametrize(("kind", "whole"), itertools.product(KVKind, (True, False)))
def test_a_latent_that_is_not_a_number_is_seen_by_those_who_chose_it(ops: CpuOps, kind: KVKind, whole: bool) -> None:
    """The other rows have the bits that they have without it. whole: whether its rotary key, and so scores, are NaN
    too."""
    layer, table = filled_layer(kind, (16, 8), (80,))
    broken = replace(layer, data=layer.data.copy())
    row = np.full((1, 24), np.nan, np.float32)
    row[0, 0 if whole else 1 :] = np.nan if whole else 1.0
    ops.latent_write(broken, row, slots_of(table[0], np.array([30])))
    chosen = np.array([[3, 7, 30, 40] if token % 2 else [3, 7, 31, 40] for token in range(39)], np.float32)
    q, turned, batch = queries(39, 3, 16, 5), queries(39, 3, 8, 6), batch_of((80,), (39,), table)
    found, without = (np.empty((39, 3, 16), np.float32) for _ in range(2))
    ops.chosen_latent_attention(found, q, turned, chosen, broken, batch, 0.1)
    ops.chosen_latent_attention(without, q, turned, chosen, layer, batch, 0.1)
    assert np.isfinite(without).all() and np.isnan(found[1::2]).any(axis=(1, 2)).all()
    assert np.array_equal(found[::2], without[::2])


def test_what_cannot_be_chosen_is_refused(ops: CpuOps) -> None:
    layer, table = filled_layer(KVKind.F32, (16, 8), (40,))
    batch, q, turned = batch_of((40,), (1,), table), normal(1, 2, 16), normal(1, 2, 8)
    out, keys = np.empty((1, 5), np.float32), normal(1, 3, 24)
    with pytest.raises(BackendError):
        ops.chosen_latent_attention(q.copy(), q, turned, normal(2, 5), layer, batch, 0.1)
    gone = replace(batch, page_table=np.full_like(batch.page_table, -1))
    for call in ((normal(1, 3, 23), normal(1, 3), batch), (keys, normal(1, 2), batch), (keys, normal(1, 3), gone)):
        with pytest.raises(BackendError):
            ops.index_select(out, call[0], call[1], layer, call[2])


