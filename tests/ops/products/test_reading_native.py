"""The order in which few rows read the weights: one stretch of memory after the other, or several in turn. The bits are
the same.

A machine chooses one of the two by its maker. Both are tried on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import INTEGER_FORMATS, LEVELS, format_id, guarded, linear, random_rows, random_weight
from twostroke.backends.cpu.ops import CpuOps, Reading
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import WeightFormat

ROWS = (1, 2, 3, 4, 5)
integer_formats = pytest.mark.parametrize("weight_format", INTEGER_FORMATS, ids=format_id)


@pytest.fixture(params=LEVELS, scope="module")
def pools(request: pytest.FixtureRequest) -> Iterator[list[CpuOps]]:
    """One thread and two, in each way of reading."""
    made = []
    for threads in (1, 2):
        for reading in (Reading.ONE_STRETCH, Reading.IN_TURN, Reading.BY_MAKER):
            ops = CpuOps(str(request.param), threads)
            ops.read_weights(reading)
            made.append(ops)
    yield made
    for ops in made:
        ops.close()


def gated(ops: CpuOps, x: F32Array, weight: PackedWeight) -> F32Array:
    """linear_silu's result in guarded room."""
    out, _ = guarded(len(x), weight.rows // 2)
    ops.linear_silu(out, x, weight)
    return out


@integer_formats
@pytest.mark.parametrize(("rows", "columns"), [(64, 300), (450, 64), (1090, 600)])
def test_a_product_has_the_same_bits(rows: int, columns: int, weight_format: WeightFormat, pools: list[CpuOps]) -> None:
    weight = random_weight(rows, columns, weight_format, with_bias=True)
    x = random_rows(max(ROWS), columns)
    expected = linear(pools[0], x, weight)
    for count in ROWS:
        for ops in pools:
            np.testing.assert_array_equal(linear(ops, x[:count], weight), expected[:count])


@integer_formats
@pytest.mark.parametrize("half", [64, 100, 1024, 2048 + 64, 64 * 50])
def test_a_gated_product_has_the_same_bits(half: int, weight_format: WeightFormat, pools: list[CpuOps]) -> None:
    """Up to four gate panels are read before their up panels, where there are enough of them for the threads."""
    weight = random_weight(2 * half, 64, weight_format, with_bias=True)
    x = random_rows(max(ROWS), 64)
    expected = gated(pools[0], x, weight)
    for count in ROWS:
        for ops in pools:
            np.testing.assert_array_equal(gated(ops, x[:count], weight), expected[:count])


def test_another_way_is_refused(pools: list[CpuOps]) -> None:
    with pytest.raises(BackendError):
        pools[0].read_weights(3)  # type: ignore[arg-type]
