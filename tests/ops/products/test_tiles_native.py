"""The level `amx` with emulated matrix registers (tests/native/emulated/tiles.py): a part of the grids of attention and
linear.

Of attention it runs the cases that these registers multiply: bf16 pages and a head size that is a multiple of 32. Of
linear it runs integers. The whole grids run where the CPU has the registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.native.emulated import tiles
from tests.ops import native
from tests.ops.attention import test_attention_native as attention
from tests.ops.native import INTEGER_FORMATS, ROTATED_FORMATS, format_id, random_rows, random_weight
from tests.ops.products import test_linear_native as linear
from twostroke.backends.cpu import CpuOps
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.spec.formats import KVKind, WeightFormat, WeightKind

SHAPES = ((1, 1), (2, 3))
PLAIN = [weight_format for weight_format in INTEGER_FORMATS if weight_format.group != 128]
plain_formats = pytest.mark.parametrize("weight_format", PLAIN, ids=format_id)
integer_formats = pytest.mark.parametrize("weight_format", [*PLAIN, *ROTATED_FORMATS], ids=format_id)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[CpuOps]:
    ops = CpuOps(tiles.load(), 1)
    yield ops
    ops.close()


@pytest.fixture(scope="module")
def ops() -> Iterator[CpuOps]:
    made = CpuOps(tiles.load(), 2)
    yield made
    made.close()


def test_the_cases_take_the_registers(ops: CpuOps) -> None:
    for dim, expected in ((64, True), (128, True), (20, False)):
        assert (ops.kernel("attention", WeightKind.F32, KVKind.BF16, 1, dim) == "run_matrix_tile") is expected
    for kind in (WeightKind.INT8, WeightKind.INT4):
        assert ops.kernel("linear", kind, KVKind.F32, 5, 64) == "block_group"


@pytest.mark.parametrize(("shape", "dim", "window"), itertools.product(((1, 8), (2, 3)), (64, 128), (0, 1, 30)))
def test_attention(ops: CpuOps, shape: tuple[int, int], dim: int, window: int) -> None:
    attention.test_attention(ops, KVKind.BF16, shape, dim, window)


@pytest.mark.parametrize(("shape", "window", "names"), itertools.product(SHAPES, (0, 30), attention.EXTRAS))
def test_soft_caps_sinks_and_slopes(ops: CpuOps, shape: tuple[int, int], window: int, names: str) -> None:
    attention.test_soft_caps_sinks_and_slopes(ops, KVKind.BF16, shape, 64, window, names)


def test_a_query_that_is_not_finite_stays_in_its_row(ops: CpuOps) -> None:
    attention.test_a_query_that_is_not_finite_stays_in_its_row(ops, KVKind.BF16, np.nan)


@pytest.mark.parametrize("dim", [32, 256])
def test_a_value_that_is_not_a_number_is_seen_by_those_who_see_its_position(ops: CpuOps, dim: int) -> None:
    attention.test_a_value_that_is_not_a_number_is_seen_by_those_who_see_its_position(ops, KVKind.BF16, (2, dim))


@pytest.mark.parametrize("window", [1, 30, 560, -30, -100])
def test_pages_behind_the_window_are_never_read(ops: CpuOps, window: int) -> None:
    attention.test_pages_behind_the_window_are_never_read(ops, KVKind.BF16, window, 64)


@pytest.mark.parametrize("window", [0, 700, -700])
def test_long_contexts_are_the_same_in_segments(ops: CpuOps, window: int) -> None:
    attention.test_long_contexts_are_the_same_in_segments(ops, KVKind.BF16, window)


@pytest.mark.parametrize(("shape", "reach"), itertools.product(SHAPES, ((0, ALL_AHEAD), (31, 30), (1, 700))))
def test_rows_that_see_later_ones(ops: CpuOps, shape: tuple[int, int], reach: tuple[int, int]) -> None:
    attention.test_rows_that_see_later_ones(ops, KVKind.BF16, shape, 64, reach)


@integer_formats
@pytest.mark.parametrize(("rows", "columns"), [(65, 64), (200, 300), (64, 600)])
def test_reference_and_batch_invariance(
    rows: int, columns: int, weight_format: WeightFormat, one_thread: CpuOps, ops: CpuOps
) -> None:
    linear.test_reference_and_batch_invariance(rows, columns, weight_format, one_thread, ops)


@integer_formats
def test_the_bits_are_those_of_avx512(weight_format: WeightFormat, one_thread: CpuOps) -> None:
    weight, x = random_weight(200, 300, weight_format, with_bias=True), random_rows(40, 300)
    other = CpuOps("avx512", 1)
    np.testing.assert_array_equal(native.linear(one_thread, x, weight), native.linear(other, x, weight))
    other.close()


@integer_formats
def test_every_number_of_rows(weight_format: WeightFormat, one_thread: CpuOps, ops: CpuOps) -> None:
    linear.test_every_number_of_rows(300, weight_format, one_thread, ops)


@plain_formats
@pytest.mark.parametrize(("sign", "end"), itertools.product((1, -1), (0, 1)))
def test_extreme_integers_are_exact(weight_format: WeightFormat, sign: int, end: int, one_thread: CpuOps) -> None:
    linear.test_extreme_integers_are_exact(weight_format, sign, end, 40, one_thread)


@plain_formats
@pytest.mark.parametrize("rows", [17, 50])
def test_every_weight_value_is_multiplied_exactly(weight_format: WeightFormat, rows: int, one_thread: CpuOps) -> None:
    linear.test_every_weight_value_is_multiplied_exactly(weight_format, rows, one_thread)
