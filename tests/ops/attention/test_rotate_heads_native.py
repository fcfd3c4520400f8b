"""rotate_heads at every level: its inverse, blocks, and heads that are refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, check_guard, guarded
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array
from twostroke.ops.rows.rotate_heads import blocks_of
from twostroke.types.errors import BackendError

SHAPES = [(1, 1, 64), (3, 2, 128), (5, 3, 80), (2, 1, 256), (4, 2, 24), (1, 2, 320), (70, 9, 64), (2, 3, 7), (3, 1, 1)]


@pytest.fixture(params=LEVELS, scope="module")
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(str(request.param), 2)
    yield made
    made.close()


def rotated(ops: CpuOps, x: F32Array, inverse: int) -> F32Array:
    out, room = guarded(len(x), x[0].size)
    heads = np.lib.stride_tricks.as_strided(out, x.shape, (out.strides[0], 4 * x.shape[2], 4))
    ops.rotate_heads(heads, x, inverse)
    check_guard(out, room)
    return np.array(heads)


@pytest.mark.parametrize("shape", SHAPES)
def test_forth_and_back_is_where_it_began(ops: CpuOps, shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(list(shape)).standard_normal(shape, dtype=np.float32)
    np.testing.assert_allclose(rotated(ops, rotated(ops, x, 0), 1), x, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 7, 24, 64, 80, 96, 128, 192, 256, 320, 576])
def test_blocks_are_powers_of_two_that_cover_a_head(dim: int) -> None:
    found = blocks_of(dim)
    assert [first for first, _ in found] == list(np.cumsum([0, *(order for _, order in found[:-1])]))
    assert sum(order for _, order in found) == dim
    assert all(order & (order - 1) == 0 and order <= 256 for _, order in found)


def test_heads_of_another_shape_are_refused(ops: CpuOps) -> None:
    x = np.zeros((2, 2, 8), np.float32)
    with pytest.raises((BackendError, ValueError)):
        ops.rotate_heads(np.zeros((2, 4, 4), np.float32), x, 0)
