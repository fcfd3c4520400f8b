"""The codecs: error bounds, special values, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.ops.cases import INTEGERS
from twostroke.ops.operands import F32Array, bf16_to_f32, f32_to_bf16, unpack_integers
from twostroke.ops.quant.codec import ALIGNMENT_BYTES, INT4_DIVISORS, pack_weight, quantize_int4, quantize_int8
from twostroke.ops.quant.formats import FORMATS, INT4, INT8, WEIGHT_NAMES, weight_format
from twostroke.ops.unpack import unpack
from twostroke.types.spec.formats import BF16, F32, WeightFormat, WeightKind

INTEGER_FORMATS = list(INTEGERS)
GAUSSIAN_ERROR = {WeightKind.INT8: 0.0075, WeightKind.INT4: 0.082}
"""For each kind that is rounded, the largest error of a Gaussian matrix, in groups of 256 columns at most."""
shapes = st.tuples(st.integers(1, 130), st.integers(1, 300))


def matrix(shape: tuple[int, int], seed: int, scale: float = 1.0) -> F32Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * np.float32(scale)


def group_amax(values: F32Array, group: int) -> F32Array:
    rows, columns = values.shape
    full = np.zeros((rows, -(-columns // group) * group), np.float32)
    full[:, :columns] = np.abs(values)
    return np.repeat(full.reshape(rows, -1, group).max(axis=2), group, axis=1)[:, :columns]


@settings(max_examples=examples(30), deadline=None)
@given(shapes, st.integers(0, 2**32), st.sampled_from([1e-6, 0.02, 1.0, 1e6]), st.sampled_from([64, 128, 256]))
def test_int8_errs_by_at_most_half_a_step(shape: tuple[int, int], seed: int, scale: float, group: int) -> None:
    values = matrix(shape, seed, scale)
    found = unpack(pack_weight(values, WeightFormat(WeightKind.INT8, group)))
    step = group_amax(values, group) / 127 * (1 + 2**-7)  # bf16 has 8 significant bits, and scales round up
    assert np.all(np.abs(found - values) <= step * 0.5001)


@settings(max_examples=examples(30), deadline=None)
@given(shapes, st.integers(0, 2**32), st.sampled_from([1e-6, 0.02, 1.0, 1e6]), st.sampled_from([64, 128, 256]))
def test_int4_is_never_worse_than_the_nearest_multipliers(
    shape: tuple[int, int], seed: int, scale: float, group: int
) -> None:
    values = matrix(shape, seed, scale)
    rows, columns = values.shape
    q, multipliers, bits = quantize_int4(values, group)
    padded = np.zeros((rows, -(-columns // group) * group), np.float32)
    padded[:, :columns] = values
    groups = padded.reshape(rows, -1, group)
    found = np.zeros_like(padded)
    found[:, : q.shape[1]] = q * np.repeat(multipliers, 16, axis=1).astype(np.float32)
    found = found.reshape(groups.shape) * bf16_to_f32(bits)[..., None]
    low, high = groups.min(-1), groups.max(-1)
    extreme = np.where(-low >= high, low, high)
    plain = bf16_to_f32(f32_to_bf16(np.where(extreme == 0, np.float32(1), extreme / np.float32(-120))))
    amax = np.abs(groups.reshape(*groups.shape[:2], -1, 16)).max(-1)
    nearest = np.clip(np.rint(amax / np.abs(plain)[..., None] / np.float32(8)), 1, 15)
    step = np.repeat(nearest, 16, axis=-1) * plain[..., None]
    rounded = np.clip(np.rint(groups / step), -8, 7) * step
    error, plain_error = (((a - groups).astype(np.float64) ** 2).sum(-1) for a in (found, rounded))
    assert np.all(error <= plain_error * 1.0001)  # it is one of the tried ones, compared in float32


def test_multipliers_fit_four_bits_and_products_eight() -> None:
    values = matrix((64, 1000), 1) * np.exp(matrix((64, 1000), 2))
    q, multipliers, _ = quantize_int4(values, 256)
    assert (multipliers.min(), multipliers.max()) == (1, 15)
    products = q.astype(np.int16) * np.repeat(multipliers, 16, axis=1)
    assert products.min() >= -120 and products.max() <= 105
    np.testing.assert_array_equal(unpack_integers(pack_weight(values, WeightFormat(WeightKind.INT4, 256)))[0], products)


@pytest.mark.parametrize("weight_format", INTEGER_FORMATS, ids=str)
def test_gaussian_error_is_what_the_bits_allow(weight_format: WeightFormat) -> None:
    values = matrix((256, 512), 7)
    error = np.sqrt(np.mean((unpack(pack_weight(values, weight_format)) - values) ** 2))
    assert error < GAUSSIAN_ERROR[weight_format.kind]


def test_smaller_groups_err_less() -> None:
    values = matrix((128, 512), 3)
    for kind in GAUSSIAN_ERROR:
        packed = [pack_weight(values, WeightFormat(kind, group)) for group in (64, 128, 256)]
        errors = [float(np.square(unpack(p) - values).sum()) for p in packed]
        assert errors == sorted(errors)


@pytest.mark.parametrize("weight_format", INTEGER_FORMATS, ids=str)
def test_zeros_stay_zeros(weight_format: WeightFormat) -> None:
    values = np.zeros((65, 100), np.float32)
    values[3, 40] = -2.5
    packed = pack_weight(values, weight_format)
    q, scales = unpack_integers(packed)
    assert np.count_nonzero(q) == 1 and np.count_nonzero(scales) == 1
    assert not np.any(np.delete(unpack(packed), 3, axis=0))


@pytest.mark.parametrize("weight_format", INTEGER_FORMATS, ids=str)
def test_tiny_groups_become_zeros_and_the_largest_values_survive(weight_format: WeightFormat) -> None:
    values = np.full((2, 32), 2.0**-101, np.float32)
    values[1] = np.float32(2.0**60) * np.where(np.arange(32) % 2, 0.99, -0.99).astype(np.float32)
    found = unpack(pack_weight(values, weight_format))
    assert not found[0].any()
    assert np.all(np.isfinite(found)) and np.allclose(found[1], values[1], rtol=0.15)


def test_the_ends_of_the_ranges_are_reached_and_kept() -> None:
    values = matrix((64, 4096), 11)
    q8, _ = quantize_int8(values, 64)
    q4, _, scales = quantize_int4(values, 64)
    assert (q8.min(), q8.max()) == (-127, 127)
    assert (q4.min(), q4.max()) == (-8, 7)
    assert (bf16_to_f32(scales) < 0).any() and (bf16_to_f32(scales) > 0).any()


def test_the_scale_search_tries_both_sides_of_eight() -> None:
    assert len(INT4_DIVISORS) == 4 and min(INT4_DIVISORS) < 8 < max(INT4_DIVISORS)


def test_representable_values_come_back_exactly() -> None:
    steps = np.tile(np.arange(-8, 8, dtype=np.float32), (3, 4)) * np.float32(15 / 64)
    np.testing.assert_array_equal(unpack(pack_weight(steps, WeightFormat(WeightKind.INT4, 64))), steps)
    bytes_ = np.tile(np.arange(-127, 129, 1, dtype=np.float32).clip(-127, 127), (3, 1)) * np.float32(0.5)
    np.testing.assert_array_equal(unpack(pack_weight(bytes_, WeightFormat(WeightKind.INT8, 256))), bytes_)


@pytest.mark.parametrize("weight_format", [F32, BF16, *INTEGER_FORMATS], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**60])
def test_unusable_values_are_refused_with_their_place(weight_format: WeightFormat, bad: float) -> None:
    values = matrix((70, 40), 5)
    values[66, 39] = bad
    with pytest.raises(ValueError, match="row 66, column 39"):
        pack_weight(values, weight_format)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (4,)])
def test_what_is_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be a matrix"):
        pack_weight(np.zeros(shape, np.float32), INT8)


@pytest.mark.parametrize("weight_format", [F32, BF16, *INTEGER_FORMATS], ids=str)
def test_packed_data_is_aligned_and_complete(weight_format: WeightFormat) -> None:
    bias = np.arange(65, dtype=np.float32)
    packed = pack_weight(matrix((65, 33), 2), weight_format, bias)
    assert packed.data.ctypes.data % ALIGNMENT_BYTES == 0
    assert packed.bias is bias
    assert unpack(packed).shape == (65, 33)


def test_formats_by_name() -> None:
    assert [weight_format(name) for name in ("f32", "bf16", "int8", "int4")] == [F32, BF16, INT8, INT4]
    assert all(f.group % 64 == 0 for f in FORMATS.values())
    with pytest.raises(ValueError, match=", ".join(WEIGHT_NAMES)):
        weight_format("int3")
