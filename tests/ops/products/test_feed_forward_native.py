"""ts_feed_forward at every level has the bits of its two ops one after the other, whatever is kept in between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from tools.gpu.stored_values import random_values

from tests.ops.native import (
    FORMATS,
    INTEGER_FORMATS,
    LEVELS,
    Answers,
    check_guard,
    format_id,
    guarded,
    random_rows,
    random_weight,
)
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import feed_forward
from twostroke.ops.quant.codec import _aligned as aligned
from twostroke.ops.stored_layout import holds_columns, pack_stored
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import STORED_GROUP, WeightFormat, WeightKind

ROWS = (1, 2, 4, 5, 16, 17, 33, 70)
"""Numbers of rows on both sides of the limits for streams, matrix tiles and blocks of 32 rows."""


STORED = (
    *((kind, kind) for kind in (WeightKind.FLAT8, WeightKind.SUPER4_MIN, WeightKind.SUPER3, WeightKind.E2M1_32)),
    *((WeightKind.SUPER4_MIN, WeightKind.SUPER6), (WeightKind.FLAT4_MIN, WeightKind.SUPER6)),
    *((WeightKind.FLAT8, WeightKind.INT8), (WeightKind.INT8, WeightKind.FLAT8)),
)
"""Kinds of gate_up and down."""


def stored_cases() -> Iterator[tuple[int, int, WeightKind, WeightKind]]:
    """Yields the sizes that both kinds can have."""
    for first, second in STORED:
        for half, columns in ((64, 320), (320, 192), (256, 512), (512, 256)):
            inputs = ((first, columns), (second, half))
            if all(kind is WeightKind.INT8 or holds_columns(kind, wide) for kind, wide in inputs):
                yield half, columns, first, second


def stored_weight(rows: int, columns: int, kind: WeightKind) -> PackedWeight:
    """Returns a matrix with random codes, or of int8."""
    chosen = WeightFormat(kind, STORED_GROUP)
    if kind is WeightKind.INT8:
        return random_weight(rows, columns, chosen, with_bias=True)
    return PackedWeight(chosen, rows, columns, aligned(pack_stored(random_values(kind, rows, columns), chosen)))


@pytest.fixture(params=LEVELS, scope="module")
def pools(request: pytest.FixtureRequest) -> Iterator[tuple[CpuOps, CpuOps]]:
    """The ops with one thread, and with two."""
    both = CpuOps(str(request.param), 1), CpuOps(str(request.param), 2)
    yield both
    for ops in both:
        ops.close()


def apart(ops: CpuOps, before: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight) -> F32Array:
    middle, out = np.empty((len(x), down.columns), np.float32), before.copy()
    ops.linear_silu(middle, x, gate_up)
    ops.linear_add(out, middle, down)
    return out


def together(ops: CpuOps, before: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight) -> F32Array:
    out, room = guarded(*before.shape)
    out[...] = before
    middle, around = guarded(len(x), down.columns)
    ops.feed_forward(out, x, gate_up, down, middle)
    check_guard(out, room)
    check_guard(middle, around)
    return out


@cache
def answer(half: int, columns: int, weight_format: WeightFormat) -> F32Array:
    """The reference of the tests below."""
    gate_up = random_weight(2 * half, columns, weight_format, with_bias=half % 2 == 0)
    down = random_weight(columns, half, weight_format, with_bias=columns % 4 == 0)
    x, out = 3 * random_rows(max(ROWS), columns), random_rows(max(ROWS), columns).copy()
    feed_forward.reference(out, np.ascontiguousarray(x), gate_up, down, np.empty((len(x), half), np.float32))
    return out


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
@pytest.mark.parametrize(("half", "columns"), [(1, 40), (64, 300), (65, 100), (320, 130), (576, 64)])
def test_one_op_gives_the_bits_of_two(
    half: int, columns: int, weight_format: WeightFormat, pools: tuple[CpuOps, CpuOps]
) -> None:
    one, two = pools
    gate_up = random_weight(2 * half, columns, weight_format, with_bias=half % 2 == 0)
    down = random_weight(columns, half, weight_format, with_bias=columns % 4 == 0)
    x, before = 3 * random_rows(max(ROWS), columns), random_rows(max(ROWS), columns)
    expected = apart(one, before, x, gate_up, down)
    for rows in ROWS:
        got = together(two, before[:rows], x[:rows], gate_up, down)
        np.testing.assert_array_equal(got, expected[:rows], err_msg=f"{rows} rows")
    if Answers.checked:
        law = answer(half, columns, weight_format)
        np.testing.assert_allclose(expected, law, rtol=0, atol=0.03 * float(np.abs(law).max()))


@pytest.mark.parametrize("first", INTEGER_FORMATS[::2], ids=format_id)
@pytest.mark.parametrize("second", [*INTEGER_FORMATS[1::2], FORMATS[0]], ids=format_id)
def test_the_two_weights_may_have_different_formats(
    first: WeightFormat, second: WeightFormat, pools: tuple[CpuOps, CpuOps]
) -> None:
    one, two = pools
    gate_up, down = random_weight(896, 192, first, with_bias=True), random_weight(192, 448, second, with_bias=True)
    x, before = random_rows(50, 192), random_rows(50, 192)
    np.testing.assert_array_equal(together(two, before, x, gate_up, down), apart(one, before, x, gate_up, down))


@pytest.mark.parametrize(("half", "columns", "first", "second"), list(stored_cases()))
def test_stored_codes_give_the_bits_of_two_ops(
    half: int, columns: int, first: WeightKind, second: WeightKind, pools: tuple[CpuOps, CpuOps]
) -> None:
    """Formats may differ, also in whether they are stored codes; one case has rows of two forms."""
    one, two = pools
    gate_up, down = stored_weight(2 * half, columns, first), stored_weight(columns, half, second)
    x, before = random_rows(max(ROWS), columns), random_rows(max(ROWS), columns)
    expected = apart(one, before, x, gate_up, down)
    for rows in (8, 9, *ROWS):
        got = together(two, before[:rows], x[:rows], gate_up, down)
        np.testing.assert_array_equal(got, expected[:rows], err_msg=f"{rows} rows")


@pytest.mark.parametrize("weight_format", INTEGER_FORMATS[2::3], ids=format_id)
@pytest.mark.parametrize(("half", "columns"), [(4160, 2112), (128, 8256)])
def test_many_rows_of_many_columns(
    half: int, columns: int, weight_format: WeightFormat, pools: tuple[CpuOps, CpuOps]
) -> None:
    """There are chunks of rows, slices of the middle's columns, and an x too long for one slice. Each row is the same
    as alone."""
    one, two = pools
    gate_up, down = random_weight(2 * half, columns, weight_format, False), random_weight(70, half, weight_format, True)
    rows = 530
    x, before = random_rows(rows, columns), random_rows(rows, 70)
    whole = together(two, before, x, gate_up, down)
    for row in (0, 127, 128, 255, 256, 495, 496, 511, 512, 529):
        alone = together(one, before[row : row + 1], x[row : row + 1], gate_up, down)
        np.testing.assert_array_equal(alone, whole[row : row + 1], err_msg=f"row {row}")


def test_values_that_no_scale_fits(pools: tuple[CpuOps, CpuOps]) -> None:
    """Zeros, the smallest and the largest numbers, and NaN. Each row is the same as alone, and its neighbours do not
    change."""
    one, two = pools
    gate_up, down = (
        random_weight(640, 256, INTEGER_FORMATS[2], False),
        random_weight(64, 320, INTEGER_FORMATS[2], False),
    )
    x = np.array(random_rows(20, 256))
    x[3], x[5], x[7], x[9, 17], x[11, 200] = 0.0, 1e-38, 3e38, np.nan, np.inf
    before = random_rows(20, 64)
    whole = together(two, before, x, gate_up, down)
    for row in range(20):
        alone = together(one, before[row : row + 1], x[row : row + 1], gate_up, down)
        np.testing.assert_array_equal(alone, whole[row : row + 1], err_msg=f"row {row}")
    assert np.isfinite(whole[[0, 1, 2, 3, 4, 5, 6, 8, 10, 12]]).all()


@pytest.mark.parametrize(
    ("out_columns", "middle_columns", "x_columns"), [(64, 320, 255), (64, 319, 256), (63, 320, 256)]
)
def test_operands_that_do_not_fit_are_refused(
    out_columns: int, middle_columns: int, x_columns: int, pools: tuple[CpuOps, CpuOps]
) -> None:
    gate_up, down = (
        random_weight(640, 256, INTEGER_FORMATS[2], False),
        random_weight(64, 320, INTEGER_FORMATS[2], False),
    )
    out = np.zeros((6, out_columns), np.float32)
    with pytest.raises(BackendError):
        middle = np.empty((6, middle_columns), np.float32)
        pools[0].feed_forward(out, np.ones((6, x_columns), np.float32), gate_up, down, middle)
    assert not out.any()


def test_weights_that_do_not_follow_each_other_are_refused(pools: tuple[CpuOps, CpuOps]) -> None:
    odd, down = random_weight(641, 256, INTEGER_FORMATS[2], False), random_weight(64, 320, INTEGER_FORMATS[2], False)
    short = random_weight(638, 256, INTEGER_FORMATS[2], False)
    for gate_up in (odd, short):
        out = np.zeros((6, 64), np.float32)
        with pytest.raises(BackendError):
            pools[0].feed_forward(out, np.ones((6, 256), np.float32), gate_up, down, np.empty((6, 320), np.float32))
        assert not out.any()
