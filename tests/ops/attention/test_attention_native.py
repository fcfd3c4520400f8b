"""attention at every level, in every KV format. It is within a rounding step of its reference, and has the same bits in
any batch, chunk, split and number of threads."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.ops.native import Answers, batch_of, normal, slots_of
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import attention, kv_write, span_attention
from twostroke.ops.attention.kv_pages import quantize_rows, read_pages
from twostroke.ops.operands import AttentionBatch, KVLayer, bf16_to_f32, new_kv_layer
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind, WeightKind

INTEGERS = [kind for kind in KVKind if kind.is_integer]
STEP = {kind: 3 / 16383 if kind.is_integer else 5e-6 for kind in KVKind}
"""The most by which one output may differ. For integers, a weight between two whole numbers may be rounded to either,
by the last bit of its exponential. That is one step of 1/16383 times a number of V."""
USUAL = 5e-6


def lost_by_parts(ops: CpuOps, layer: KVLayer) -> float:
    """A further difference that an output may have, where weights are multiplied on matrix registers; else 0.

    There a weight is the sum of two bf16 numbers (csrc/include/twostroke/attention/matrix.h). The first differs by up
    to 2^-8 of the weight's power of two. The second has this difference, except for up to 2^-17 of that power. An
    output is the mean of V by these weights, so it differs by up to 2^-17 of the largest number of V.
    """
    if ops.kernel("attention", WeightKind.F32, layer.kind, 1, layer.head_dim) != "run_matrix_tile":
        return 0.0
    _, values = read_pages(layer, np.arange(layer.num_pages))
    return 2.0**-17 * float(np.nanmax(np.abs(values)))


def near(ops: CpuOps, layer: KVLayer, found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether each output is within a step, and all together (root mean square) are as near as floats are."""
    error = np.abs(found - expected)
    step = STEP[layer.kind] + lost_by_parts(ops, layer)
    return bool(error.max() < step and np.sqrt(np.mean(error**2)) < USUAL)


def spoil(layer: KVLayer) -> None:
    """Makes every number of the layer NaN; in integer layers, every scale."""
    layer.data.view(np.uint8)[...] = 0xFF


@cache
def filled_layer(kind: KVKind, kv_heads: int, dim: int, contexts: tuple[int, ...]) -> tuple[KVLayer, np.ndarray]:
    """A layer whose used positions are random and whose unused ones are NaN, and a scattered page table. Both are
    read-only."""
    pages_each = -(-max(contexts) // PAGE_TOKENS)
    layer = new_kv_layer(kind, pages_each * len(contexts) + 1, kv_heads, dim)
    spoil(layer)
    order = np.random.default_rng(9).permutation(layer.num_pages)[: pages_each * len(contexts)]
    table = np.ascontiguousarray(order.reshape(len(contexts), pages_each).astype(np.int32))
    for s, context in enumerate(contexts):
        slots = slots_of(table[s], np.arange(context))
        k, v = normal(context, kv_heads, dim, seed=10 + s), normal(context, kv_heads, dim, seed=40 + s)
        kv_write.reference(layer, k, v, slots)
    layer.data.flags.writeable = table.flags.writeable = False
    return layer, table


def writable(layer: KVLayer) -> KVLayer:
    return replace(layer, data=layer.data.copy())


@cache
def queries(rows: int, heads: int, more: int, dim: int, seed: int) -> np.ndarray:
    """Queries (rows, heads, dim), as a view of an array with `more` further heads."""
    q = normal(rows, heads + more, dim, seed=seed)
    q.flags.writeable = False
    return q[:, :heads]


@cache
def answer(
    kind: KVKind, shape: tuple[int, int], dim: int, window: int, contexts: tuple[int, ...], counts: tuple[int, ...]
) -> np.ndarray:
    """The reference, which is the same for all levels and numbers of threads."""
    layer, table = filled_layer(kind, shape[0], dim, contexts)
    q = queries(sum(counts), shape[0] * shape[1], 2, dim, 99)
    out = np.empty(q.shape, np.float32)
    attention.Attention.reference(out, q, layer, batch_of(contexts, counts, table), dim**-0.5, window)
    return out


def alone(ops: CpuOps, q: np.ndarray, layer: KVLayer, table: np.ndarray, position: int, window: int) -> np.ndarray:
    """The result of one row by itself."""
    one = AttentionBatch(np.array([0, 1], np.int32), np.array([position + 1], np.int32), table.copy())
    out = np.empty(q.shape, np.float32)
    ops.attention(out, q, layer, one, q.shape[-1] ** -0.5, window)
    return out[0]


@pytest.mark.parametrize("kind", INTEGERS)
def test_rounding_is_to_the_nearest_and_a_dead_row_stays_dead(kind):
    rows = normal(500, 64, seed=5)
    rows[0] = 0
    rows[1, 9] = np.nan
    q, bits = quantize_rows(kind, rows)
    scales = bf16_to_f32(bits)[:, None]
    found = q * scales
    assert not found[0].any() and np.isnan(found[1]).all()
    steps = np.abs((found - rows)[2:] / scales[2:])
    inside = np.abs(rows[2:] / scales[2:]) < (127 if kind is KVKind.INT8 else 7)
    assert steps[inside].max() <= 0.5001 and steps.max() <= 1.02
    assert np.abs(q).max() == (127 if kind is KVKind.INT8 else 8)
    rows = np.array([[127, 0.5, 1.5, -2.5]], np.float32)  # with scale 1, halves are rounded to even
    assert quantize_rows(KVKind.INT8, rows)[0].tolist() == [[127, 0, 2, -2]]
    assert quantize_rows(KVKind.INT4, np.array([[-8, 0.5, 1.5, -2.5]], np.float32))[0].tolist() == [[-8, 0, 2, -2]]


GRID = list(itertools.product(KVKind, ((1, 1), (2, 3), (1, 8), (2, 4)), (16, 20, 64, 128), (0, 1, 30, 100)))


@pytest.mark.parametrize(("kind", "shape", "dim", "window"), GRID)
def test_attention(ops, kind, shape, dim, window):
    kv_heads, group = shape
    contexts, counts = (1, 40, 150, 259), (1, 1, 70, 19)
    layer, table = filled_layer(kind, kv_heads, dim, contexts)
    batch = batch_of(contexts, counts, table)
    starts = batch.row_starts
    q = queries(sum(counts), kv_heads * group, 2, dim, 99)
    found = np.empty(q.shape, np.float32)
    ops.attention(found, q, layer, batch, dim**-0.5, window)
    if Answers.checked:
        assert near(ops, layer, found, answer(kind, shape, dim, window, contexts, counts))
    for s, row in ((1, 1), (2, 2), (2, 60), (3, 80), (3, 90)):
        position = contexts[s] - (int(starts[s + 1]) - row)
        assert np.array_equal(alone(ops, q[row : row + 1], layer, table[s : s + 1], position, window), found[row])


def extras(names: str, heads: int) -> dict[str, Any]:
    """The soft_cap, sinks and slopes in `names`, as an op takes them."""
    rng = np.random.default_rng(heads)
    return {
        "soft_cap": 1.0 if "cap" in names else 0.0,
        "sinks": rng.normal(1, 3, heads).astype(np.float32) if "sinks" in names else None,
        "slopes": (2.0 ** -np.arange(1, heads + 1)).astype(np.float32) if "slopes" in names else None,
    }


EXTRAS = ("cap", "sinks", "slopes", "cap sinks slopes")


@pytest.mark.parametrize(
    ("kind", "shape", "dim", "window", "names"),
    itertools.product(KVKind, ((1, 1), (2, 3)), (20, 64), (0, 30), EXTRAS),
)
def test_soft_caps_sinks_and_slopes(ops, kind, shape, dim, window, names):
    """Four segments, one long chunk, and decoding rows. Each row alone gives the same bits."""
    heads = shape[0] * shape[1]
    contexts, counts = (1, 40, 150, 1300), (1, 1, 70, 3)
    layer, table = filled_layer(kind, shape[0], dim, contexts)
    batch, given = batch_of(contexts, counts, table), tuple(extras(names, heads).values())
    q = queries(sum(counts), heads, 2, dim, 99)
    found, plain, expected = (np.empty(q.shape, np.float32) for _ in range(3))
    ops.attention(found, q, layer, batch, dim**-0.5, window, *given)
    ops.attention(plain, q, layer, batch, dim**-0.5, window)
    if Answers.checked:
        attention.Attention.reference(expected, q, layer, batch, dim**-0.5, window, *given)
        assert near(ops, layer, found, expected)
        assert np.abs(found - plain).max() > 0.01
    single = CpuOps(ops.level, 1)
    for s, row in ((1, 1), (2, 2), (2, 60), (3, 72), (3, 74)):
        position = contexts[s] - (int(batch.row_starts[s + 1]) - row)
        one = AttentionBatch(np.array([0, 1], np.int32), np.array([position + 1], np.int32), table[s : s + 1].copy())
        for other in (ops, single):
            out = np.empty((1, heads, dim), np.float32)
            other.attention(out, np.ascontiguousarray(q[row : row + 1]), layer, one, dim**-0.5, window, *given)
            assert np.array_equal(out[0], found[row])
    single.close()


@pytest.mark.parametrize("kind", KVKind)
def test_a_cap_of_nothing_and_extreme_sinks(ops, kind):
    """A wide cap and a very low sink change no visible result; a very high sink takes all."""
    layer, table = filled_layer(kind, 1, 16, (40,))
    batch, q = batch_of((40,), (20,), table), normal(20, 2, 16, seed=97)
    plain, found = np.empty(q.shape, np.float32), np.empty(q.shape, np.float32)
    ops.attention(plain, q, layer, batch, 0.25, 0)
    ops.attention(found, q, layer, batch, 0.25, 0, 1e6, np.full(2, -1e4, np.float32), np.zeros(2, np.float32))
    assert np.abs(found - plain).max() < 1e-3
    ops.attention(found, q, layer, batch, 0.25, 0, 0.0, np.full(2, -1e30, np.float32), np.zeros(2, np.float32))
    assert np.array_equal(found, plain)
    ops.attention(found, q, layer, batch, 0.25, 0, 0.0, np.full(2, 1e30, np.float32), None)
    assert not np.abs(found).max() > 1e-30
    q[7, 1, 3] = np.nan
    ops.attention(found, q, layer, batch, 0.25, 0, *extras("cap sinks slopes", 2).values())
    assert np.isnan(found[7, 1]).all() and np.isfinite(np.delete(found.reshape(40, 16), 15, axis=0)).all()


def test_extras_that_do_not_fit_are_refused(ops):
    layer, table = filled_layer(KVKind.F32, 1, 16, (40,))
    batch, q = batch_of((40,), (1,), table), normal(1, 2, 16)
    for wrong in ((0.0, np.ones(3, np.float32), None), (0.0, None, np.ones(1, np.float32))):
        with pytest.raises(BackendError, match="must be"):
            ops.attention(q.copy(), q, layer, batch, 1.0, 0, *wrong)
    for cap in (-1.0, float("nan")):
        with pytest.raises(BackendError, match="refused"):
            ops.attention(q.copy(), q, layer, batch, 1.0, 0, cap)


def given_back(batch: AttentionBatch, window: int) -> AttentionBatch:
    """The same batch, where pages that no row sees were given back."""
    table = batch.page_table.copy()
    for s, context in enumerate(batch.context_tokens):
        position = context - (batch.row_starts[s + 1] - batch.row_starts[s])
        table[s, : attention.first_seen(position, window) // PAGE_TOKENS] = -1
    return AttentionBatch(batch.row_starts, batch.context_tokens, table)


@pytest.mark.parametrize(
    ("kind", "window", "dim"), itertools.product(KVKind, (1, 16, 30, 100, 560, -30, -100, -512), (20, 64))
)
def test_pages_behind_the_window_are_never_read(ops, kind, window, dim):
    contexts, counts = (40, 150, 259, 1300), (1, 70, 1, 19)
    layer, table = filled_layer(kind, 2, dim, contexts)
    whole = batch_of(contexts, counts, table)
    gone = given_back(whole, window)
    assert (gone.page_table < 0).sum() > 20
    q = queries(sum(counts), 4, 2, dim, 99)
    expected, found = np.empty(q.shape, np.float32), np.empty(q.shape, np.float32)
    ops.attention(expected, q, layer, whole, dim**-0.5, window)
    ops.attention(found, q, layer, gone, dim**-0.5, window)
    assert np.array_equal(found, expected)
    if Answers.checked:
        attention.Attention.reference(found, q, layer, gone, dim**-0.5, window)
        assert near(ops, layer, expected, found)


def test_a_page_that_is_seen_must_be_there(ops):
    layer, table = filled_layer(KVKind.F32, 2, 16, (100,))
    gone = given_back(batch_of((100,), (1,), table), 40)
    q = queries(1, 2, 1, 16, 99)
    ops.attention(np.empty(q.shape, np.float32), q, layer, gone, 1.0, 40)
    with pytest.raises(BackendError):
        ops.attention(np.empty(q.shape, np.float32), q, layer, gone, 1.0, 60)


@pytest.mark.parametrize(("kind", "window"), itertools.product(KVKind, (0, 700, -700)))
def test_long_contexts_are_the_same_in_segments(ops, kind, window):
    """1,300 positions are three segments, which are merged. Two threads share them where there are few rows; else one
    thread takes them in order."""
    dim, context = 32, 1300
    contexts, counts = (context, 5), (100, 3)
    layer, table = filled_layer(kind, 1, dim, contexts)
    q = queries(103, 4, 2, dim, 99)
    found = np.empty(q.shape, np.float32)
    ops.attention(found, q, layer, batch_of(contexts, counts, table), dim**-0.5, window)
    if Answers.checked:
        assert near(ops, layer, found, answer(kind, (1, 4), dim, window, contexts, counts))
    single = CpuOps(ops.level, 1)
    for row in (0, 1, 37, 99):
        for other in (ops, single):
            one = alone(other, q[row : row + 1], layer, table[:1], context - 100 + row, window)
            assert np.array_equal(one, found[row])
    many = AttentionBatch(np.arange(41, dtype=np.int32), np.arange(1201, 1241, dtype=np.int32), table[[0] * 40])
    crowd = np.empty((40, *q.shape[1:]), np.float32)
    ops.attention(crowd, q[:40], layer, many, dim**-0.5, window)
    assert np.array_equal(crowd, found[:40])
    single.close()


@pytest.mark.parametrize(("kind", "value"), itertools.product(KVKind, (np.nan, np.inf)))
def test_a_query_that_is_not_finite_stays_in_its_row(ops, kind, value):
    layer, table = filled_layer(kind, 1, 32, (40,))
    batch = AttentionBatch(np.array([0, 20], np.int32), np.array([40], np.int32), table)
    q = normal(20, 2, 32, seed=97)
    clean, found = np.empty(q.shape, np.float32), np.empty(q.shape, np.float32)
    ops.attention(clean, q, layer, batch, 0.25, 0)
    q[7, 1, 3] = value
    ops.attention(found, q, layer, batch, 0.25, 0)
    assert np.isnan(found[7, 1]).all()
    found[7, 1] = clean[7, 1]
    assert np.array_equal(found, clean)


@pytest.mark.parametrize(("kind", "shape"), itertools.product(KVKind, ((1, 20), (2, 32), (2, 256))))
def test_a_value_that_is_not_a_number_is_seen_by_those_who_see_its_position(ops, kind, shape):
    """This holds also in a block where only some rows see it, in a chunk of many rows, and in one of few."""
    group, dim = shape
    for position, count in itertools.product((29, 30, 31, 38), (40, 3)):
        layer, table = filled_layer(kind, 1, dim, (40,))
        batch, q = batch_of((40,), (count,), table), normal(count, group, dim, seed=96)
        clean, found = np.empty(q.shape, np.float32), np.empty(q.shape, np.float32)
        ops.attention(clean, q, layer, batch, 0.25, 0)
        layer = writable(layer)
        broken = np.full((1, 1, dim), np.nan, np.float32)
        ops.kv_write(layer, normal(1, 1, dim), broken, slots_of(table[0], np.array([position])))
        ops.attention(found, q, layer, batch, 0.25, 0)
        before = max(position - (40 - count), 0)
        assert np.array_equal(found[:before], clean[:before]) and np.isnan(found[before:]).all()


@pytest.mark.parametrize("kind", KVKind)
def test_many_small_weights_beside_a_large_one_are_not_lost(ops, kind):
    """The first position has 900 times the weight of each other one in its tile. V of ones must give ones."""
    k = np.zeros((64, 1, 16), np.float32)
    k[0, 0, 0] = 1
    layer, table = filled_layer(kind, 1, 16, (64,))
    layer = writable(layer)
    ops.kv_write(layer, k, np.ones_like(k), slots_of(table[0], np.arange(64)))
    q = np.zeros((1, 1, 16), np.float32)
    q[0, 0, 0] = np.log(900)
    assert np.abs(alone(ops, q * 4, layer, table, 63, 0) - 1).max() < 4e-3


def test_bad_indices_are_refused(ops):
    layer = new_kv_layer(KVKind.F32, 2, 1, 16)
    one = normal(1, 1, 16)
    for slot in (-1, 32):
        with pytest.raises(BackendError):
            ops.kv_write(layer, one, one, np.array([slot], np.int32))
    for page, context in ((2, 1), (-1, 1), (0, 17), (0, 0)):
        table = np.array([[page, 0]], np.int32)[:, :1]  # the number after the table is a page, too
        batch = AttentionBatch(np.array([0, 1], np.int32), np.array([context], np.int32), table)
        with pytest.raises(BackendError):
            ops.attention(one.copy(), one, layer, batch, 1.0, 0)


AHEAD = list(itertools.product(KVKind, ((1, 1), (2, 3)), (20, 64), ((0, ALL_AHEAD), (31, 30), (1, 700))))


@pytest.mark.parametrize(("kind", "shape", "dim", "reach"), AHEAD)
def test_rows_that_see_later_ones(ops, kind, shape, dim, reach):
    """Whole texts, the last of which has three segments, and a chunk of one text. Each has the same bits alone."""
    window, ahead = reach
    heads, more = shape[0] * shape[1], (0.0, None, None, ahead)
    contexts, counts = (1, 40, 150, 1300), (1, 40, 150, 5)
    layer, table = filled_layer(kind, shape[0], dim, contexts)
    batch, q = batch_of(contexts, counts, table), queries(sum(counts), heads, 2, dim, 99)
    found, expected = (np.empty(q.shape, np.float32) for _ in range(2))
    ops.attention(found, q, layer, batch, dim**-0.5, window, *more)
    if Answers.checked:
        attention.Attention.reference(expected, q, layer, batch, dim**-0.5, window, *more)
        assert near(ops, layer, found, expected)
    single = CpuOps(ops.level, 1)
    for s, other in itertools.product((1, 2, 3), (ops, single)):
        rows = slice(int(batch.row_starts[s]), int(batch.row_starts[s + 1]))
        one = batch_of(contexts[s : s + 1], counts[s : s + 1], table[s : s + 1].copy())
        out = np.empty((counts[s], heads, dim), np.float32)
        other.attention(out, np.ascontiguousarray(q[rows]), layer, one, dim**-0.5, window, *more)
        assert np.array_equal(out, found[rows])
    single.close()


def test_a_negative_reach_is_refused(ops):
    layer, table = filled_layer(KVKind.F32, 1, 16, (40,))
    q = normal(20, 2, 16, seed=97)
    with pytest.raises(BackendError):
        ops.attention(
            np.empty(q.shape, np.float32), q, layer, batch_of((40,), (20,), table), 0.25, 0, 0.0, None, None, -1
        )


SPANS = ((60, 110), (200, 259))
"""The positions of spans in the third and the fourth sequence. The second span ends with its sequence."""


@pytest.mark.parametrize(
    ("kind", "shape", "dim", "window"), itertools.product(KVKind, ((1, 1), (2, 3), (1, 8)), (16, 72), (0, 30, 100))
)
def test_rows_of_a_span_see_each_other(ops, kind, shape, dim, window):
    """The result is the reference, and outside spans it has the bits of attention. The bits are the same where the
    span's rows come in two steps."""
    contexts, counts = (1, 40, 150, 259), (1, 1, 150, 70)
    layer, table = filled_layer(kind, shape[0], dim, contexts)
    batch, q = batch_of(contexts, counts, table), queries(sum(counts), shape[0] * shape[1], 2, dim, 98)
    positions = np.concatenate([np.arange(e - c, e) for e, c in zip(contexts, counts, strict=True)])
    owners = np.repeat(np.arange(4), counts)
    ends = np.zeros(sum(counts), np.int32)
    for owner, (first, end) in zip((2, 3), SPANS, strict=True):
        ends[(owners == owner) & (positions >= first) & (positions < end)] = end
    found, plain, expected = (np.empty(q.shape, np.float32) for _ in range(3))
    ops.span_attention(found, q, layer, batch, ends, dim**-0.5, window)
    ops.attention(plain, q, layer, batch, dim**-0.5, window)
    if Answers.checked:
        span_attention.SpanAttention.reference(expected, q, layer, batch, ends, dim**-0.5, window)
        assert near(ops, layer, found, expected)
    last = ends == positions + 1
    assert np.array_equal(found[(ends == 0) | last], plain[(ends == 0) | last])
    assert np.abs(found - plain)[(ends > 0) & ~last].max(axis=(1, 2)).min() > 0
    ops.span_attention(plain, q, layer, batch, np.zeros_like(ends), dim**-0.5, window)
    assert np.array_equal(plain[ends == 0], found[ends == 0])
    later = np.flatnonzero((owners == 2) & (positions >= 90) & (positions < 110))
    half = AttentionBatch(np.array([0, 20], np.int32), np.array([110], np.int32), table[2:3].copy())
    out = np.empty((20, *q.shape[1:]), np.float32)
    ops.span_attention(out, np.ascontiguousarray(q[later]), layer, half, ends[later], dim**-0.5, window)
    assert np.array_equal(out, found[later])
