"""Floats rounded to codes of 6 bits with whole multipliers: their error, for any number of columns and any size."""

from __future__ import annotations

import numpy as np
import pytest

from twostroke.ops.operands import F32Array
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import INT4, INT6, INT8
from twostroke.ops.quant.super6 import quantize_super6
from twostroke.ops.stored_layout import stored_values
from twostroke.ops.unpack import unpack
from twostroke.types.spec.formats import WeightFormat, WeightKind

PLAIN = WeightFormat(WeightKind.SUPER6, 256)


def gaussian(rows: int, columns: int) -> F32Array:
    return np.random.default_rng([rows, columns]).standard_normal((rows, columns), dtype=np.float32)


def lost(values: F32Array, weight_format: WeightFormat) -> float:
    """The root mean square of the rounding error, as a share of that of the values."""
    difference = unpack(pack_weight(values, weight_format)).astype(np.float64) - values
    return float(np.sqrt(np.mean(difference**2) / np.mean(values.astype(np.float64) ** 2)))


@pytest.mark.parametrize("columns", [256, 576, 640, 1152, 2880])
def test_gaussian_weights_lose_a_fourth_of_what_they_lose_in_int4(columns: int) -> None:
    values = gaussian(128, columns) * np.float32(0.02)
    assert lost(values, INT8) < lost(values, INT6) < 0.018 < lost(values, INT4) / 4


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_the_size_of_the_weights_does_not_matter(size: float) -> None:
    assert lost(gaussian(64, 320) * np.float32(size), INT6) < 0.018


@pytest.mark.parametrize("weight_format", [PLAIN, INT6])
@pytest.mark.parametrize("columns", [1, 15, 16, 64, 65, 255, 256, 257, 576])
def test_data_has_the_bytes_that_its_format_says(columns: int, weight_format: WeightFormat) -> None:
    weight = pack_weight(gaussian(70, columns), weight_format)
    assert weight.data.nbytes == weight_format.data_bytes(70, columns)
    assert weight.scales is None and weight_format.scale_bytes(70, columns) == 0


def test_multiples_of_a_step_come_back_as_they_were() -> None:
    codes = np.random.default_rng(1).integers(-32, 32, (8, 512)).astype(np.float32)
    codes[:, ::16] = -32
    values = codes * np.float32(0.25)
    np.testing.assert_array_equal(unpack(pack_weight(values, PLAIN)), values)


def test_zeros_stay_zeros() -> None:
    values = gaussian(3, 300)
    values[1] = 0
    values[2, :256] = 0
    found = unpack(pack_weight(values, PLAIN))
    assert not found[1].any() and not found[2, :256].any() and found[2, 256:].any()


def test_a_large_column_costs_none_but_its_sixteen_neighbours_a_bit() -> None:
    values = gaussian(32, 256)
    before = lost(values[:, 16:], PLAIN)
    values[:, 3] *= 20
    found = unpack(pack_weight(values, PLAIN))[:, 16:]
    after = np.sqrt(np.mean((found - values[:, 16:]) ** 2) / np.mean(values[:, 16:] ** 2))
    assert after < 1.5 * before


def test_weights_beyond_what_scales_hold_are_the_largest_ones() -> None:
    """The limit is a float16 times 127 or 128 times 31 or 32. No real model has such weights, and none becomes
    infinite."""
    found = unpack(pack_weight(np.full((1, 16), 2.0**50, np.float32), PLAIN))
    assert np.isfinite(found).all() and (found > 2.0**27).all()


def test_what_is_packed_is_what_was_rounded() -> None:
    values = gaussian(130, 600)
    expected, found = quantize_super6(values), stored_values(pack_weight(values, PLAIN))
    np.testing.assert_array_equal(found.codes, expected.codes)
    np.testing.assert_array_equal(found.scales, expected.scales)
    np.testing.assert_array_equal(found.multipliers, expected.multipliers)
