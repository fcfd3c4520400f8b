"""low_rank at every level: ranks, results added to products, and refused calls."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.ops.banks import joined
from tests.ops.native import check_guard, format_id, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.products import low_rank
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import INT8
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import BF16, COLUMNS8, F32, WeightFormat

ADAPTERS = np.array([0, 0, 2, -1, *[1] * 37, -1, -1, 0, 2, 1, 3, 3, 2], np.int32)
ROWS, FIRST, COUNT = len(ADAPTERS), 3, 4


@cache
def ranked_bank(rows: int, room: int, ranks: tuple[int, ...], weight_format: WeightFormat) -> PackedWeight:
    """A matrix for each rank, with zeros from its rank on."""
    rng = np.random.default_rng([rows, room])
    matrices = [rng.standard_normal((rows, room), dtype=np.float32) for _ in ranks]
    for matrix, rank in zip(matrices, ranks, strict=True):
        matrix[:, rank:] = 0
    return joined([pack_weight(each, weight_format) for each in matrices])


def adapted(
    ops: CpuOps, product: F32Array, x: F32Array, down: PackedWeight, up: PackedWeight, ranks: F32Array, who: I32Array
) -> F32Array:
    out, room = guarded(len(x), product.shape[1])
    ops.low_rank(out, product, x, down, up, ranks, who, np.full((len(x), down.columns), np.nan, np.float32), FIRST)
    check_guard(out, room)
    return out


def test_a_result_may_lie_where_the_product_is(ops: CpuOps) -> None:
    banks = [ranked_bank(size, 8, (8, 8, 8, 8), F32) for size in (40, 70)]
    x, product, ranks = random_rows(5, 40), random_rows(5, 75), np.full(4, 8, np.float32)
    who = np.array([0, 1, -1, 2, 2], np.int32)
    inside = np.ascontiguousarray(product)
    ops.low_rank(inside, inside, x, *banks, ranks, who, np.empty((5, 8), np.float32), FIRST)
    assert np.array_equal(inside, adapted(ops, product, x, *banks, ranks, who))


@pytest.mark.parametrize("weight_format", [BF16, COLUMNS8], ids=format_id)
def test_a_rank_says_how_much_of_a_matrix_is_read(ops: CpuOps, weight_format: WeightFormat) -> None:
    """Zeros after an adapter's rank change no bit, and a bank with more room gives the same bits."""
    x, product, who = random_rows(3, 100), random_rows(3, 200), np.zeros(3, np.int32)
    small, large = (
        [ranked_bank(size, 8, (5, 5, 5, 5), weight_format) for size in (100, 190)],
        [ranked_bank(size, 8, (5, 5, 5, 5), F32) for size in (100, 190)],
    )
    wide = [joined([pack_weight(np.pad(_matrix(bank), ((0, 0), (0, 24))), weight_format)] * 4) for bank in large]
    found = adapted(ops, product, x, *small, np.full(4, 5, np.float32), who)
    for rank in (5, 8, 32):
        assert np.array_equal(adapted(ops, product, x, *wide, np.full(4, rank, np.float32), who), found)


def _matrix(bank: PackedWeight) -> F32Array:
    from twostroke.ops.unpack import unpack

    return unpack(bank.expert(0))


@pytest.mark.parametrize("wrong", [-2, 4])
def test_the_number_of_no_adapter_is_refused(ops: CpuOps, wrong: int) -> None:
    banks, ranks = [ranked_bank(8, 8, (8, 8, 8, 8), F32)] * 2, np.full(4, 8, np.float32)
    who, x, wide = np.array([0, wrong], np.int32), random_rows(2, 8), random_rows(2, 13)
    with pytest.raises(BackendError, match="an index lies outside its range"):
        adapted(ops, wide, x, *banks, ranks, who)
    with pytest.raises(IndexError):
        low_rank.LowRank.reference(wide.copy(), wide, x, *banks, ranks, who, np.empty((2, 8), np.float32), FIRST)


@pytest.mark.parametrize("wrong", [-1.0, 9.0, np.nan])
def test_a_rank_without_room_is_refused(ops: CpuOps, wrong: float) -> None:
    banks = [ranked_bank(8, 8, (8, 8, 8, 8), F32)] * 2
    with pytest.raises(BackendError, match="an index lies outside its range"):
        adapted(
            ops,
            random_rows(2, 13),
            random_rows(2, 8),
            *banks,
            np.array([8, 8, 8, wrong], np.float32),
            np.zeros(2, np.int32),
        )


@pytest.mark.parametrize(
    ("down", "up", "count"),
    [
        ((8, 8, F32), (8, 16, F32), 4),  # other room for ranks
        ((9, 8, F32), (8, 8, F32), 4),  # other inputs
        ((8, 8, F32), (11, 8, F32), 4),  # more rows than the result has
        ((8, 8, INT8), (8, 8, INT8), 4),  # no floats
        ((8, 4, F32), (8, 4, F32), 4),  # no multiple of 8
        ((8, 8, F32), (8, 8, F32), 3),  # another number of adapters
    ],
)
def test_banks_that_do_not_fit_are_refused(
    ops: CpuOps, down: tuple[int, int, WeightFormat], up: tuple[int, int, WeightFormat], count: int
) -> None:
    banks = [ranked_bank(rows, room, (room,) * 4, weight_format) for rows, room, weight_format in (down, up)]
    with pytest.raises(BackendError):
        adapted(
            ops, random_rows(2, 13), random_rows(2, 8), *banks, np.full(count, 4, np.float32), np.zeros(2, np.int32)
        )
