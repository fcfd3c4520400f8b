"""The ops beside linear and embed at every level: their references over a grid, and the same bits in any batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.ops import attention, head_norm, kv_write, rms_norm, rope, silu_mul
from twostroke.ops.operands import AttentionBatch, KVLayer, RopeTable, new_kv_layer
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.types.errors import BackendError


@pytest.fixture(scope="module", params=list(itertools.product(available_levels(), (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "columns"), itertools.product((1, 7, 33), (1, 15, 16, 17, 64, 200)))
def test_rows_of_norm_silu_add_and_gather(ops, rows, columns):
    x, weight = normal(rows, columns, seed=1), normal(columns, seed=2)
    found, expected = np.empty_like(x), np.empty_like(x)
    ops.rms_norm(found, x, weight, 1e-5)
    rms_norm.reference(expected, x, weight, 1e-5)
    assert np.abs(found - expected).max() < 3e-6 * max(1, np.abs(expected).max())
    for row in range(rows):
        alone = np.empty((1, columns), np.float32)
        ops.rms_norm(alone, x[row : row + 1], weight, 1e-5)
        assert np.array_equal(alone[0], found[row])
    wide = 20 * normal(rows, 2 * columns, seed=3)
    ops.silu_mul(found, wide)
    silu_mul.reference(expected, wide)
    assert np.allclose(found, expected, rtol=2e-6, atol=1e-6)
    total = x.copy()
    ops.add(total, found)
    assert np.array_equal(total, x + found)
    chosen = np.random.default_rng(4).integers(0, rows, 5).astype(np.int32)
    out = np.empty((5, columns), np.float32)
    ops.gather_rows(out, x, chosen)
    assert np.array_equal(out, x[chosen])


@pytest.mark.parametrize(("rows", "heads", "dim"), itertools.product((1, 9), (1, 3), (2, 16, 20, 64, 128)))
def test_heads_of_a_strided_view(ops, rows, heads, dim):
    whole = normal(rows, heads + 2, dim, seed=5)
    table_rows = normal(50, dim // 2, seed=6)
    table = RopeTable(np.cos(table_rows), np.sin(table_rows))
    positions = np.random.default_rng(7).integers(0, 50, rows).astype(np.int32)
    weight = normal(dim, seed=8)
    for act, refer in (
        (lambda x: ops.rope(x, table, positions), lambda x: rope.reference(x, table, positions)),
        (lambda x: ops.head_norm(x, weight, 1e-6), lambda x: head_norm.reference(x, weight, 1e-6)),
    ):
        found, expected = whole.copy(), whole.copy()
        act(found[:, 1 : 1 + heads])
        refer(expected[:, 1 : 1 + heads])
        assert np.allclose(found, expected, rtol=3e-6, atol=3e-6)
        assert np.array_equal(found[:, 0], whole[:, 0]) and np.array_equal(found[:, -1], whole[:, -1])


def filled_layer(kind: KVKind, kv_heads: int, dim: int, ops: CpuOps, contexts: list[int]) -> tuple[KVLayer, np.ndarray]:
    """A layer whose used positions are random and whose unused ones are NaN, and a scattered page table."""
    pages_each = -(-max(contexts) // PAGE_TOKENS)
    layer = new_kv_layer(kind, pages_each * len(contexts) + 1, kv_heads, dim)
    layer.data[...] = np.nan if kind is KVKind.F32 else 0x7FC0
    order = np.random.default_rng(9).permutation(layer.num_pages)[: pages_each * len(contexts)]
    table = np.ascontiguousarray(order.reshape(len(contexts), pages_each).astype(np.int32))
    for s, context in enumerate(contexts):
        at = np.arange(context)
        slots = (table[s, at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS).astype(np.int32)
        k, v = normal(context, kv_heads, dim, seed=10 + s), normal(context, kv_heads, dim, seed=40 + s)
        ops.kv_write(layer, k, v, slots)
    return layer, table


@pytest.mark.parametrize("kind", KVKind)
def test_kv_write_is_the_reference_bit_for_bit(ops, kind):
    k, v = normal(21, 3, 20, seed=1), normal(21, 3, 20, seed=2)
    slots = np.random.default_rng(3).permutation(64)[:21].astype(np.int32)
    found, expected = new_kv_layer(kind, 4, 3, 20), new_kv_layer(kind, 4, 3, 20)
    ops.kv_write(found, k, v, slots)
    kv_write.reference(expected, k, v, slots)
    assert np.array_equal(found.data, expected.data)


GRID = list(itertools.product(KVKind, ((1, 1), (2, 3), (1, 8), (2, 4)), (16, 20, 64, 128), (0, 1, 30, 100)))


@pytest.mark.parametrize(("kind", "shape", "dim", "window"), GRID)
def test_attention(ops, kind, shape, dim, window):
    kv_heads, group = shape
    contexts, counts = [1, 40, 150, 259], [1, 1, 70, 19]
    layer, table = filled_layer(kind, kv_heads, dim, ops, contexts)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    batch = AttentionBatch(starts, np.array(contexts, np.int32), table)
    q = normal(int(starts[-1]), kv_heads * group + 2, dim, seed=99)[:, : kv_heads * group]
    found, expected = np.empty(q.shape, np.float32), np.empty(q.shape, np.float32)
    ops.attention(found, q, layer, batch, dim**-0.5, window)
    attention.reference(expected, q, layer, batch, dim**-0.5, window)
    assert np.abs(found - expected).max() < 5e-6
    for s, row in ((1, 1), (2, 2), (2, 60), (3, 80), (3, 90)):
        position = contexts[s] - (int(starts[s + 1]) - row)
        one = AttentionBatch(np.array([0, 1], np.int32), np.array([position + 1], np.int32), table[s : s + 1].copy())
        alone = np.empty((1, *q.shape[1:]), np.float32)
        ops.attention(alone, q[row : row + 1], layer, one, dim**-0.5, window)
        assert np.array_equal(alone[0], found[row])


def test_bad_indices_are_refused(ops):
    layer = new_kv_layer(KVKind.F32, 2, 1, 16)
    one = normal(1, 1, 16)
    for slot in (-1, 32):
        with pytest.raises(BackendError):
            ops.kv_write(layer, one, one, np.array([slot], np.int32))
    for page, context in ((2, 1), (-1, 1), (0, 17), (0, 0)):
        batch = AttentionBatch(np.array([0, 1], np.int32), np.array([context], np.int32), np.array([[page]], np.int32))
        with pytest.raises(BackendError):
            ops.attention(one.copy(), one, layer, batch, 1.0, 0)
    table = RopeTable(normal(4, 8), normal(4, 8))
    for position in (-1, 4):
        with pytest.raises(BackendError):
            ops.rope(one.copy(), table, np.array([position], np.int32))
    with pytest.raises(BackendError):
        ops.gather_rows(np.empty((1, 16), np.float32), normal(3, 16), np.array([3], np.int32))
    with pytest.raises(BackendError):
        ops.add(normal(2, 3), normal(3, 2))
