"""The ops next to linear, embed, kv_write and attention at every level: their references over a grid, and the same bits
in any batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import rope
from twostroke.ops.operands import RopeTable
from twostroke.ops.rows import head_layer_norm, head_norm, rms_norm
from twostroke.types.errors import BackendError


@pytest.fixture(scope="module", params=list(itertools.product(LEVELS, (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "columns"), itertools.product((1, 7, 33), (1, 15, 16, 17, 64, 200)))
def test_rows_of_norm_and_gather(ops, rows, columns):
    x, weight = normal(rows, columns, seed=1), normal(columns, seed=2)
    found, expected = np.empty_like(x), np.empty_like(x)
    ops.rms_norm(found, x, weight, 1e-5)
    rms_norm.reference(expected, x, weight, 1e-5)
    assert np.abs(found - expected).max() < 3e-6 * max(1, np.abs(expected).max())
    for row in range(rows):
        alone = np.empty((1, columns), np.float32)
        ops.rms_norm(alone, x[row : row + 1], weight, 1e-5)
        assert np.array_equal(alone[0], found[row])
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
    weight, bias, own = normal(dim, seed=8), normal(dim, seed=9), normal(heads * dim, seed=10)
    norm = head_layer_norm.reference
    for act, refer in (
        (lambda x: ops.rope(x, table, positions), lambda x: rope.reference(x, table, positions)),
        (lambda x: ops.head_norm(x, weight, 1e-6), lambda x: head_norm.reference(x, weight, 1e-6)),
        (lambda x: ops.head_layer_norm(x, weight, bias, 1e-5), lambda x: norm(x, weight, bias, 1e-5)),
        (lambda x: ops.head_layer_norm(x, own, None, 1e-5), lambda x: norm(x, own, None, 1e-5)),
    ):
        found, expected = whole.copy(), whole.copy()
        act(found[:, 1 : 1 + heads])
        refer(expected[:, 1 : 1 + heads])
        assert np.allclose(found, expected, rtol=3e-6, atol=2e-5)
        assert np.array_equal(found[:, 0], whole[:, 0]) and np.array_equal(found[:, -1], whole[:, -1])


def test_bad_indices_are_refused(ops):
    one = normal(1, 1, 16)
    table = RopeTable(normal(4, 8), normal(4, 8))
    for position in (-1, 4):
        with pytest.raises(BackendError):
            ops.rope(one.copy(), table, np.array([position], np.int32))
    with pytest.raises(BackendError):
        ops.gather_rows(np.empty((1, 16), np.float32), normal(3, 16), np.array([3], np.int32))
