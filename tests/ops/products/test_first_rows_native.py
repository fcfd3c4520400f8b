"""Rows at the first positions of a text have two codes, at every level. Each has the bits that it has alone, whatever
rows are computed with it, in every order of rows and with any number of threads. The other rows are as without
positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, check_guard, format_id, guarded, random_rows, random_weight
from tests.ops.products.test_stored_native import packed
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.products import linear
from twostroke.ops.quant.formats import INT4, INT6, INT8
from twostroke.ops.unpack import unpack
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32, STORED_GROUP, WeightFormat, WeightKind

STORED = [WeightFormat(kind, STORED_GROUP) for kind in (WeightKind.FLAT8, WeightKind.SUPER4_MIN, WeightKind.SUPER6)]
FORMATS = [INT8, INT4, INT6, WeightFormat(WeightKind.INT8, 64), *STORED]
TEXT_ROWS = (1, 2, 3, 5, 7, 17, 33, 66)
"""The rows of the texts of a step, one text after the other, until the step is full."""


@pytest.fixture(params=LEVELS, scope="module")
def pools(request: pytest.FixtureRequest) -> Iterator[tuple[CpuOps, CpuOps]]:
    """The ops with one thread, and with three."""
    both = CpuOps(str(request.param), 1), CpuOps(str(request.param), 3)
    yield both
    for ops in both:
        ops.close()


def weight_of(rows: int, columns: int, weight_format: WeightFormat) -> PackedWeight:
    if weight_format in STORED:
        return packed(weight_format.kind, rows, columns)
    return random_weight(rows, columns, weight_format, rows % 2 == 1)


def positions_of(rows: int, first: int) -> I32Array:
    """Returns the positions of the rows of a step. The first text goes on from `first`; the others begin here."""
    found = list(range(first, first + 9))
    while len(found) < rows:
        found += range(TEXT_ROWS[len(found) % len(TEXT_ROWS)])
    return np.array(found[:rows], np.int32)


def product(ops: CpuOps, name: str, x: F32Array, weight: PackedWeight, positions: I32Array | None) -> F32Array:
    """The op's result. What it is added to differs from row to row."""
    out, room = guarded(len(x), weight.rows // (2 if name == "linear_silu" else 1))
    out[...] = x[:, :1]
    getattr(ops, name)(out, x, weight, positions)
    check_guard(out, room)
    return out.copy()


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
@pytest.mark.parametrize("name", ["linear", "linear_add", "linear_silu"])
def test_a_row_has_the_bits_that_it_has_alone(
    name: str, weight_format: WeightFormat, pools: tuple[CpuOps, CpuOps]
) -> None:
    one, many = pools
    for rows, columns in ((130, 512), (64, 256)):
        weight, x = weight_of(rows, columns, weight_format), random_rows(150, columns)
        positions = positions_of(150, 1)
        plain = product(one, name, x, weight, None)
        alone = np.concatenate([product(one, name, x[r : r + 1], weight, positions[r : r + 1]) for r in range(150)])
        first = positions < linear.FIRST_POSITIONS
        assert np.array_equal(alone[~first], plain[~first]) and not np.array_equal(alone[first], plain[first])
        for count in (1, 2, 3, 4, 5, 9, 16, 31, 33, 70, 150):
            some = slice(150 - count, 150)
            assert np.array_equal(product(many, name, x[some], weight, positions[some]), alone[some]), f"{count} rows"
        every = np.zeros(70, np.int32)
        assert np.array_equal(product(many, name, x[:70], weight, every)[first[:70]], alone[:70][first[:70]])


@pytest.mark.parametrize("weight_format", [INT8, INT4, STORED[0]], ids=format_id)
@pytest.mark.parametrize(("rows", "columns"), [(70, 8192), (4160, 256)])
def test_many_rows_in_chunks_and_in_slices_of_columns(
    rows: int, columns: int, weight_format: WeightFormat, pools: tuple[CpuOps, CpuOps]
) -> None:
    one, many = pools
    weight, x, positions = weight_of(rows, columns, weight_format), random_rows(530, columns), positions_of(530, 0)
    whole = product(many, "linear", x, weight, positions)
    assert np.array_equal(product(one, "linear", x, weight, positions), whole)
    for row in (0, 3, 4, 127, 128, 129, 255, 256, 511, 512, 529):
        alone = product(one, "linear", x[row : row + 1], weight, positions[row : row + 1])
        assert np.array_equal(alone, whole[row : row + 1]), f"row {row}"


@pytest.mark.parametrize("second", [INT8, INT4, F32, STORED[1]], ids=format_id)
@pytest.mark.parametrize("first", [INT8, INT4, STORED[0]], ids=format_id)
def test_feed_forward_has_the_bits_of_two_ops(
    first: WeightFormat, second: WeightFormat, pools: tuple[CpuOps, CpuOps]
) -> None:
    one, many = pools
    gate_up, down = weight_of(1024, 256, first), weight_of(193, 512, second)
    x, before, positions = random_rows(150, 256), random_rows(150, 193), positions_of(150, 2)
    middle, apart = np.empty((150, 512), np.float32), before.copy()
    one.linear_silu(middle, x, gate_up, positions)
    one.linear_add(apart, middle, down, positions)
    for count in (1, 3, 4, 5, 16, 17, 40, 150):
        out, room = guarded(count, 193)
        out[...] = before[:count]
        many.feed_forward(out, x[:count], gate_up, down, np.empty((count, 512), np.float32), positions[:count])
        check_guard(out, room)
        assert np.array_equal(out, apart[:count]), f"{count} rows"


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
def test_two_codes_are_a_hundred_times_nearer(weight_format: WeightFormat, pools: tuple[CpuOps, CpuOps]) -> None:
    """The law is checked by the cases of the ops; here it is seen that the second code does what it is for."""
    weight, x = weight_of(64, 512, weight_format), np.array(random_rows(8, 512))
    x[:, 77] *= 300.0
    law = x.astype(np.float64) @ unpack(weight).astype(np.float64).T
    bias = 0 if weight.bias is None else weight.bias
    one_code, two_codes = (
        np.abs(product(pools[1], "linear", x, weight, np.full(8, position, np.int32)) - bias - law).max()
        for position in (linear.FIRST_POSITIONS, linear.FIRST_POSITIONS - 1)
    )
    assert two_codes < one_code / 100


def test_positions_of_other_rows_are_refused(pools: tuple[CpuOps, CpuOps]) -> None:
    out, x, weight = np.zeros((3, 64), np.float32), random_rows(3, 64), random_weight(64, 64, INT8, False)
    with pytest.raises(BackendError, match=r"positions must be of shape \(3\)"):
        pools[0].linear(out, x, weight, np.zeros(4, np.int32))
