"""low_rank at every level: its reference over a grid, and each row's bits whatever adapters stand beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.banks import bank
from tests.ops.native import LEVELS, check_guard, format_id, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops import low_rank
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.quant.formats import INT4, INT8
from twostroke.spec.formats import BF16, F32, WeightFormat
from twostroke.types.errors import BackendError


@pytest.fixture(scope="module", params=list(itertools.product(LEVELS, (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()


def adapted(
    ops: CpuOps, product: F32Array, x: F32Array, down: PackedWeight, up: PackedWeight, adapters: I32Array
) -> F32Array:
    out, room = guarded(len(x), up.rows)
    ops.low_rank(out, product, x, down, up, adapters, np.empty((len(x), down.rows), np.float32))
    check_guard(out, room)
    return out


@pytest.mark.parametrize("weight_format", [F32, BF16, INT8, INT4], ids=format_id)
@pytest.mark.parametrize(("rank", "columns", "width"), [(1, 1, 1), (8, 64, 96), (5, 300, 65), (64, 127, 200)])
def test_adapted_rows_are_the_references(
    ops: CpuOps, weight_format: WeightFormat, rank: int, columns: int, width: int
) -> None:
    x, product = random_rows(17, columns), random_rows(17, width)
    down, up = bank(3, rank, columns, weight_format), bank(3, width, rank, weight_format)
    adapters = np.array([0, 0, 2, -1, 1, 1, 1, 1, 1, 1, -1, -1, 0, 2, 1, 0, 2], np.int32)
    found, expected = adapted(ops, product, x, down, up, adapters), np.empty((17, width), np.float32)
    low_rank.reference(expected, product, np.ascontiguousarray(x), down, up, adapters, np.empty((17, rank), np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert np.array_equal(found[adapters < 0], product[adapters < 0])
    for row in range(17):
        alone = adapted(ops, product[row : row + 1], x[row : row + 1], down, up, adapters[row : row + 1])
        assert np.array_equal(alone[0], found[row])


@pytest.mark.parametrize("wrong", [-2, 3])
def test_the_number_of_no_adapter_is_refused(ops: CpuOps, wrong: int) -> None:
    x, down, up = random_rows(2, 8), bank(3, 4, 8, F32), bank(3, 8, 4, F32)
    with pytest.raises(BackendError, match="an index lies outside its range"):
        adapted(ops, random_rows(2, 8), x, down, up, np.array([0, wrong], np.int32))
    with pytest.raises(IndexError):
        low_rank.reference(
            np.empty((1, 8), np.float32), x[:1], x[:1], down, up, np.array([wrong], np.int32), np.empty((1, 4))
        )


def test_banks_that_do_not_fit_are_refused(ops: CpuOps) -> None:
    x, adapters = random_rows(2, 8), np.zeros(2, np.int32)
    for down, up in ((bank(3, 4, 8, F32), bank(2, 8, 4, F32)), (bank(3, 4, 8, F32), bank(3, 8, 5, F32))):
        with pytest.raises(BackendError):
            adapted(ops, x, x, down, up, adapters)
