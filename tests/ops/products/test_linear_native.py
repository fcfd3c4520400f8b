"""ts_linear at every level that this machine runs, compared with ops/products/linear.py over a grid of shapes and
formats."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from tests.ops.native import (
    FORMATS,
    IN_FEATURES,
    INTEGER_FORMATS,
    LEVELS,
    OUT_FEATURES,
    Answers,
    check_guard,
    format_id,
    guarded,
    linear,
    linear_answer,
    random_rows,
    random_weight,
)
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops.operands import F32Array, PackedWeight, pack_integers
from twostroke.ops.products import linear as contract
from twostroke.ops.products import linear_silu
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32, WeightFormat, WeightKind

ROWS = (1, 2, 3, 4, 5, 6, 7, 13, 64, 100)
ENDS = {WeightKind.INT8: (-127, 127), WeightKind.INT4: (-8, 7)}
"""The lowest and the highest number of each kind that is rounded."""
all_formats = pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
integer_formats = pytest.mark.parametrize("weight_format", INTEGER_FORMATS, ids=format_id)


@pytest.fixture(params=LEVELS, scope="module")
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def one_thread(level: str) -> Iterator[CpuOps]:
    yield from opened(level, 1)


@pytest.fixture(scope="module")
def two_threads(level: str) -> Iterator[CpuOps]:
    yield from opened(level, 2)


@pytest.fixture(scope="module")
def three_threads(level: str) -> Iterator[CpuOps]:
    yield from opened(level, 3)


@pytest.fixture(scope="module")
def seven_threads(level: str) -> Iterator[CpuOps]:
    yield from opened(level, 7)


def opened(level: str, threads: int) -> Iterator[CpuOps]:
    ops = CpuOps(level, threads)
    yield ops
    ops.close()


def reference(x: F32Array, weight: PackedWeight) -> F32Array:
    out = np.empty((x.shape[0], weight.rows), np.float32)
    contract.reference(out, np.ascontiguousarray(x), weight)
    return out


@all_formats
@pytest.mark.parametrize("columns", IN_FEATURES)
@pytest.mark.parametrize("rows", OUT_FEATURES)
def test_reference_and_batch_invariance(
    rows: int, columns: int, weight_format: WeightFormat, one_thread: CpuOps, two_threads: CpuOps
) -> None:
    weight = random_weight(rows, columns, weight_format, with_bias=columns % 2 == 1)
    x = random_rows(max(ROWS), columns)
    whole = linear(one_thread, x, weight)
    if Answers.checked:
        expected = linear_answer(len(x), rows, columns, weight_format, columns % 2 == 1)
        # float32 sums of `columns` products; integer kinds differ in the rounding of a sum of few groups
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(whole, expected, rtol=0, atol=2e-7 * scale * np.sqrt(columns) + 1e-6)
    for count in ROWS:
        np.testing.assert_array_equal(linear(two_threads, x[:count], weight), whole[:count])
    for row in (1, 17, 63, 99):
        np.testing.assert_array_equal(linear(one_thread, x[row : row + 1], weight), whole[row : row + 1])


@integer_formats
@pytest.mark.parametrize("columns", [64, 300, 1088])
def test_every_number_of_rows(
    columns: int, weight_format: WeightFormat, one_thread: CpuOps, two_threads: CpuOps
) -> None:
    """Up to two blocks of 16 and some more rows: each number of rows has kernels of its own."""
    weight = random_weight(130, columns, weight_format, with_bias=True)
    x = random_rows(37, columns)
    single = np.concatenate([linear(one_thread, x[row : row + 1], weight) for row in range(len(x))])
    for count in range(2, len(x) + 1):
        np.testing.assert_array_equal(linear(two_threads, x[:count], weight), single[:count])


@cache
def gated_answer(half: int, columns: int, weight_format: WeightFormat) -> F32Array:
    """The reference of linear_silu for the tests below."""
    out = np.empty((37, half), np.float32)
    weight = random_weight(2 * half, columns, weight_format, with_bias=half % 2 == 1)
    linear_silu.reference(out, np.ascontiguousarray(3 * random_rows(37, columns)), weight)
    return out


@all_formats
@pytest.mark.parametrize(("half", "columns"), [(1, 40), (31, 64), (64, 300), (65, 100), (150, 130), (192, 64)])
def test_what_is_made_of_the_sums(
    half: int, columns: int, weight_format: WeightFormat, one_thread: CpuOps, two_threads: CpuOps
) -> None:
    """Sums are added to existing numbers, or gated by silu, with up rows that begin anywhere in a panel. A row's bits
    are its own."""
    weight = random_weight(2 * half, columns, weight_format, with_bias=half % 2 == 1)
    x = 3 * random_rows(37, columns)
    before = random_rows(37, 2 * half)
    added, room = guarded(37, 2 * half)
    added[...] = before
    two_threads.linear_add(added, x, weight)
    check_guard(added, room)
    np.testing.assert_array_equal(added, before + linear(one_thread, x, weight))
    gated, room = guarded(37, half)
    two_threads.linear_silu(gated, x, weight)
    check_guard(gated, room)
    if Answers.checked:
        expected = gated_answer(half, columns, weight_format)
        np.testing.assert_allclose(gated, expected, rtol=2e-5, atol=2e-5 * float(np.abs(expected).max()))
    for row in (0, 20, 36):
        alone = np.empty((1, half), np.float32)
        one_thread.linear_silu(alone, x[row : row + 1], weight)
        np.testing.assert_array_equal(alone, gated[row : row + 1])


def test_an_odd_number_of_rows_is_no_gate(one_thread: CpuOps) -> None:
    with pytest.raises(BackendError):
        one_thread.linear_silu(
            np.empty((1, 1), np.float32), random_rows(1, 64), random_weight(3, 64, F32, with_bias=False)
        )


@all_formats
def test_many_rows_pass_in_chunks(weight_format: WeightFormat, one_thread: CpuOps, two_threads: CpuOps) -> None:
    columns = 8192  # 512 rows make a chunk, in slices of their columns; for floats, 128
    weight = random_weight(65, columns, weight_format, with_bias=True)
    x = random_rows(1040, columns)
    whole = linear(two_threads, x, weight)
    for row in (0, 127, 128, 129, 255, 256, 511, 512, 1023, 1024, 1039):
        np.testing.assert_array_equal(linear(one_thread, x[row : row + 1], weight), whole[row : row + 1])


@all_formats
def test_the_vector_levels_agree_bit_for_bit(weight_format: WeightFormat) -> None:
    vector_levels = [level for level in LEVELS if level != "generic"]
    weight = random_weight(200, 300, weight_format, with_bias=True)
    x = random_rows(13, 300)
    results = []
    for level in vector_levels:
        ops = CpuOps(level, 1)
        results.append(linear(ops, x, weight))
        ops.close()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def constant_weight(weight_format: WeightFormat, q: int, columns: int, multiplier: int = 1) -> PackedWeight:
    """A weight (64, columns) in which every q is the same, scales are 1, and there is one multiplier if the kind has
    any."""
    values = np.full((64, columns), q, np.int8)
    scales = np.full((64, weight_format.num_groups(columns)), 0x3F80, np.uint16)
    multipliers = np.full((64, columns // 16), multiplier, np.uint8)
    chosen = multipliers if weight_format.kind is WeightKind.INT4 else None
    data, packed = pack_integers(values, chosen, scales, weight_format)
    return PackedWeight(weight_format, 64, columns, data, packed)


@integer_formats
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("rows", [1, 3, 7, 40])
def test_extreme_integers_are_exact(
    weight_format: WeightFormat, sign: int, end: int, rows: int, one_thread: CpuOps
) -> None:
    q = ENDS[weight_format.kind][end]
    multiplier = 15 if weight_format.kind is WeightKind.INT4 else 1
    columns = 2 * weight_format.group
    x = np.full((rows, columns), 127 * sign, np.float32)  # the scale is 1, and q is 127
    expected = np.full((rows, 64), float(columns * 127 * sign * q * multiplier), np.float32)
    weight = constant_weight(weight_format, q, columns, multiplier)
    np.testing.assert_array_equal(linear(one_thread, x, weight), expected)


@integer_formats
@pytest.mark.parametrize("rows", [1, 4, 6, 17, 50])
def test_every_weight_value_is_multiplied_exactly(weight_format: WeightFormat, rows: int, one_thread: CpuOps) -> None:
    low, high = ENDS[weight_format.kind]
    columns = weight_format.group
    rng = np.random.default_rng(4)
    q = rng.integers(low, high + 1, (300, columns)).astype(np.int8)
    q[: high - low + 1, 0] = np.arange(low, high + 1)
    multipliers = rng.integers(0, 16, (300, columns // 16)).astype(np.uint8)
    chosen = multipliers if weight_format.kind is WeightKind.INT4 else None
    data, scales = pack_integers(q, chosen, np.full((300, 1), 0x3F80, np.uint16), weight_format)
    x = rng.integers(-127, 128, (rows, columns)).astype(np.float32)
    x[:, 0] = 127
    whole = q.astype(np.int64) if chosen is None else q.astype(np.int64) * np.repeat(multipliers, 16, axis=1)
    expected = (x.astype(np.int64) @ whole.T).astype(np.float32)
    found = linear(one_thread, x, PackedWeight(weight_format, 300, columns, data, scales))
    np.testing.assert_array_equal(found, expected)


@integer_formats
@pytest.mark.parametrize("magnitude", [0.0, 1e-40, 1e-37, 7e-37, 1e-30, 1e30, 1e34])
def test_activations_of_any_magnitude_are_quantized_alike(
    weight_format: WeightFormat, magnitude: float, one_thread: CpuOps
) -> None:
    weight = constant_weight(weight_format, 1, 128)
    x = random_rows(3, 128).clip(-1, 1) * np.float32(magnitude)
    expected = reference(x, weight)
    np.testing.assert_allclose(linear(one_thread, x, weight), expected, rtol=1e-5, atol=magnitude * 1e-4)


@all_formats
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(weight_format: WeightFormat, bad: float, one_thread: CpuOps) -> None:
    weight = random_weight(65, 128, weight_format, with_bias=False)
    x = np.array(random_rows(5, 128))
    clean = linear(one_thread, x, weight)
    x[2, 77] = bad
    found = linear(one_thread, x, weight)
    assert not np.isfinite(found[2]).any()
    np.testing.assert_array_equal(np.delete(found, 2, axis=0), np.delete(clean, 2, axis=0))


def test_no_rows_are_nothing_to_do(one_thread: CpuOps) -> None:
    weight = random_weight(65, 31, INTEGER_FORMATS[0], with_bias=False)
    assert linear(one_thread, random_rows(1, 31)[:0], weight).shape == (0, 65)


@pytest.mark.parametrize(
    "weight_format", [WeightFormat(WeightKind.INT8, 96), WeightFormat(WeightKind.INT4, 16384)], ids=format_id
)
def test_groups_that_no_kernel_has_are_refused(weight_format: WeightFormat, one_thread: CpuOps) -> None:
    columns = 2 * weight_format.group
    weight = constant_weight(weight_format, 1, columns)
    with pytest.raises(BackendError, match="format"):
        linear(one_thread, np.ones((1, columns), np.float32), weight)


def test_overlong_outputs_of_f32_follow_the_order_of_k(one_thread: CpuOps) -> None:
    """Each output has one accumulator, and k rises. Sums that depend on the order come out as that order gives them."""
    values = np.tile(np.array([1.0, 2.0**24, -(2.0**24), 1.0], np.float32), (65, 40))
    weight = PackedWeight(F32, 65, 160, random_weight(65, 160, F32, with_bias=False).data.copy())
    weight.data.view(np.float32).reshape(-1, 160, 64)[...] = np.tile(values[0][:, None], (2, 1, 64))
    expected = np.float32(0)
    for value in values[0]:
        expected += value
    np.testing.assert_array_equal(linear(one_thread, np.ones((3, 160), np.float32), weight), np.full((3, 65), expected))


@integer_formats
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("out_features", [256, 581])
def test_few_rows_take_several_panels_at_once(
    weight_format: WeightFormat, rows: int, out_features: int, one_thread: CpuOps, three_threads: CpuOps
) -> None:
    """There are panels that are read in turn, panels that are left over, and tasks that one thread takes from
    another."""
    weight = random_weight(out_features, 700, weight_format, with_bias=True)
    gates = random_weight(2 * (out_features // 64 * 64), 700, weight_format, with_bias=False)
    x = random_rows(16, 700)
    one, three = one_thread, three_threads
    found = linear(three, x[:rows], weight)
    if Answers.checked:
        expected = linear_answer(16, out_features, 700, weight_format, True)[:rows]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))
    np.testing.assert_array_equal(found, linear(one, x, weight)[:rows])
    few, many = np.empty((rows, gates.rows // 2), np.float32), np.empty((16, gates.rows // 2), np.float32)
    three.linear_silu(few, x[:rows], gates)
    one.linear_silu(many, x, gates)
    np.testing.assert_array_equal(few, many[:rows])


@integer_formats
@pytest.mark.parametrize("rows", [5, 16, 17, 31, 33, 47, 100])
def test_few_panels_for_many_threads(
    weight_format: WeightFormat, rows: int, one_thread: CpuOps, seven_threads: CpuOps
) -> None:
    """There are more threads than panels, so rows are divided, and some parts may stay empty."""
    weight = random_weight(64, 128, weight_format, with_bias=False)
    x = random_rows(rows, 128)
    np.testing.assert_array_equal(linear(seven_threads, x, weight), linear(one_thread, x, weight))
