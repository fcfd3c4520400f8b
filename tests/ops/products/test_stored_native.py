"""Products and rows of weights that keep a file's codes, at every level, compared with ops/stored_layout.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tools.gpu.stored_values import CODES, KINDS, random_values

from tests.ops.native import LEVELS, linear, random_rows
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops.operands import PackedWeight
from twostroke.ops.products import embed as embed_contract
from twostroke.ops.products import linear as contract
from twostroke.ops.quant.codec import _aligned
from twostroke.ops.stored_layout import canonical, holds_columns, pack_stored, stored_values
from twostroke.ops.stored_values import StoredValues
from twostroke.ops.unpack import unpack
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import STORED_GROUP, WeightFormat, WeightKind

COLUMNS = (32, 64, 96, 256, 896, 1152)
ROWS = (1, 2, 3, 5, 6, 7, 8, 13, 40, 150)


def packed(kind: WeightKind, rows: int, columns: int, values: StoredValues | None = None) -> PackedWeight:
    found, chosen = values or random_values(kind, rows, columns), WeightFormat(kind, STORED_GROUP)
    bias = random_rows(1, rows)[0] if rows % 2 else None
    return PackedWeight(chosen, rows, columns, _aligned(pack_stored(found, chosen)), bias=bias)


def shapes() -> Iterator[tuple[WeightKind, int]]:
    for kind in KINDS:
        yield from ((kind, columns) for columns in COLUMNS if holds_columns(kind, columns))


@pytest.fixture(params=LEVELS, scope="module")
def one_thread(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    ops = CpuOps(str(request.param), 1)
    yield ops
    ops.close()


@pytest.mark.parametrize(("kind", "columns"), list(shapes()))
@pytest.mark.parametrize("rows", [1, 63, 130])
def test_what_is_packed_is_what_was_given(kind, columns, rows):
    values = random_values(kind, rows, columns)
    weight = packed(kind, rows, columns, values)
    assert np.array_equal(unpack(weight), values.values())
    assert np.array_equal(stored_values(weight).codes[:, :columns], values.codes)


@pytest.mark.parametrize(("kind", "columns"), list(shapes()))
@pytest.mark.parametrize("rows", [1, 130])
def test_products(kind, columns, rows, one_thread):
    weight, x = packed(kind, rows, columns), random_rows(max(ROWS), columns)
    whole = linear(one_thread, x, weight)
    expected = np.empty_like(whole)
    contract.reference(expected, x, weight)
    magnitude = np.abs(x) @ np.abs(unpack(weight)).T
    assert (np.abs(whole - expected) <= 1e-5 * magnitude + 1e-6).all()
    with CpuOpsOf(one_thread, 2) as two_threads:
        for count in ROWS:
            np.testing.assert_array_equal(linear(two_threads, x[:count], weight), whole[:count])
    for row in (1, 17, 63, 99):
        np.testing.assert_array_equal(linear(one_thread, x[row : row + 1], weight), whole[row : row + 1])


class CpuOpsOf:
    """Another context of the same level."""

    def __init__(self, like: CpuOps, threads: int) -> None:
        self.ops = CpuOps(like.level, threads)

    def __enter__(self) -> CpuOps:
        return self.ops

    def __exit__(self, *exception: object) -> None:
        self.ops.close()


@pytest.mark.parametrize(("kind", "columns"), list(shapes()))
def test_rows_of_a_table(kind, columns, one_thread):
    weight = PackedWeight(WeightFormat(kind, STORED_GROUP), 130, columns, packed(kind, 130, columns).data)
    ids = np.array([0, 129, 64, 63, 7, 7], np.int32)
    out, expected = (np.full((len(ids), columns), np.nan, np.float32) for _ in range(2))
    one_thread.embed(out, weight, ids)
    embed_contract.reference(expected, weight, ids)
    # a level may subtract the minimum with one rounding less
    assert np.allclose(out, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", [WeightKind.SUPER4_MIN, WeightKind.SUPER6_MIN])
def test_every_number_of_rows(kind, one_thread):
    weight, x = packed(kind, 70, 512), random_rows(37, 512)
    single = np.concatenate([linear(one_thread, x[row : row + 1], weight) for row in range(len(x))])
    for count in range(2, len(x) + 1):
        np.testing.assert_array_equal(linear(one_thread, x[:count], weight), single[:count])


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_codes_by_the_largest_activations(kind, one_thread):
    """The largest sums must fit 16 bits: all codes of a row are equal, and all activations round to 127 or -127."""
    values = random_values(kind, 64, 256)
    values.codes[:32], values.codes[32:] = CODES[kind][0], CODES[kind][1]
    weight = packed(kind, 64, 256, values)
    x = np.repeat(np.array([[1], [-1]], np.float32), 256, axis=1)[np.arange(20) % 2]
    whole = linear(one_thread, x, weight)
    expected = np.empty_like(whole)
    contract.reference(expected, x, weight)
    assert np.allclose(whole, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    for count in (1, 2, 4, 8):
        np.testing.assert_array_equal(linear(one_thread, x[:count], weight), whole[:count])


FINE = [kind for kind in KINDS if kind.has_fine_activations]


@pytest.mark.parametrize("kind", FINE)
def test_a_large_activation_makes_no_other_32_columns_coarser(kind, one_thread):
    """Row b has one large number in block b of 32 columns, and zeros next to it. So the rounding of that block is
    exact, and the error of all others is at most half of a 127th of their own largest magnitude."""
    assert WeightFormat(kind, STORED_GROUP).activation_columns == 32
    columns = 2 * STORED_GROUP + 64
    x = random_rows(columns // 32, columns).copy().reshape(-1, columns // 32, 32)
    for block in range(len(x)):
        x[block, block] = 0
        x[block, block, block] = 1000
    weight = packed(kind, 70, columns)
    values = unpack(weight).astype(np.float64)
    halves = np.abs(x).max(axis=2) / 254 * ~np.eye(len(x), dtype=bool)
    most = halves @ np.abs(values).reshape(70, -1, 32).sum(axis=2).T
    flat = x.reshape(len(x), -1)
    exact = flat @ values.T
    least = np.abs(flat) @ np.abs(values).T * 1e-6  # the error of sums in float32
    reference = np.empty(exact.shape, np.float32)
    contract.reference(reference, flat, weight)
    for found in (reference, linear(one_thread, flat, weight), linear(one_thread, flat[:1], weight)):
        assert (np.abs(found - exact[: len(found)]) <= most[: len(found)] + least[: len(found)]).all()


def test_what_a_kind_cannot_hold_is_refused(one_thread):
    flat, least = random_values(WeightKind.FLAT8, 3, 64), random_values(WeightKind.FLAT8_MIN, 3, 64)
    with pytest.raises(ValueError, match="SUPER8 holds one scale"):
        canonical(flat, WeightKind.SUPER8)
    with pytest.raises(ValueError, match="minima only"):
        canonical(least, WeightKind.FLAT8)
    with pytest.raises(ValueError, match="float16"):
        pack_stored(StoredValues(flat.codes, flat.scales + np.float32(1e-4)), WeightFormat(WeightKind.FLAT8, 256))
    for group in (64, 512):
        weight = PackedWeight(WeightFormat(WeightKind.FLAT8, group), 3, 64, packed(WeightKind.FLAT8, 3, 64).data)
        with pytest.raises(BackendError):
            linear(one_thread, random_rows(2, 64), weight)


def test_more_than_enough_columns_is_done_in_slices(one_thread):
    weight, x = packed(WeightKind.FLAT4, 65, 4096 + 32), random_rows(300, 4096 + 32)
    whole = linear(one_thread, x, weight)
    for row in (0, 150, 299):
        np.testing.assert_array_equal(linear(one_thread, x[row : row + 1], weight), whole[row : row + 1])
