"""Weights for sampling: every level has the bits of the NumPy reference, and these are probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import LEVELS
from twostroke.backends.cpu.weigh import NativeWeights
from twostroke.ops.attention.token_weights import FIXED, WEIGHT_BITS, NearScore, exponents, ln_of_sum, weigh


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 2, 7, 8, 15, 513, 4099])
def test_a_level_makes_the_bits_of_the_reference(level: str, size: int) -> None:
    native, dice = NativeWeights(level), np.random.default_rng(size)
    for spread in (0.0, 1.0, 8.0, 1e30):
        logits = dice.normal(0, 1, size).astype(np.float32) * np.float32(spread)
        if size > 2:
            logits[1] = -np.inf
        for temperature in (1e-320, 1e-5, 0.3, 0.7, 1.0, 2.0, 100.0):
            assert np.array_equal(native(logits, temperature), weigh(logits, temperature))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 2, 7, 8, 15, 513, 4099])
def test_the_other_numbers_of_a_row_are_those_of_the_reference(level: str, size: int) -> None:
    native, dice = NativeWeights(level), np.random.default_rng(size)
    for spread in (0.0, 1.0, 8.0, 1e5, 1e30):
        logits = dice.normal(0, 1, size).astype(np.float32) * np.float32(spread)
        assert native.spread(logits) == weigh.spread(logits)
        for temperature in (1e-320, 0.3, 1.0, 100.0):
            weights = weigh(logits, temperature)
            assert native.exponent_sum(logits, weights, temperature) == weigh.exponent_sum(logits, weights, temperature)
            for mean in (0.0, -0.7, -60.0):
                own, expected = (each.nearness(logits, temperature, mean) for each in (native, weigh))
                assert np.array_equal(own, expected)
            for aim in (0.0, 0.3, 1.0):
                score = NearScore(aim, 0.3, 5.0, 10.0)
                made = zip(*(each.near(weights, int(weights.sum()), score) for each in (native, weigh)), strict=True)
                assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in made)


def test_the_sums_are_those_of_whole_numbers() -> None:
    logits = np.random.default_rng(4).normal(0, 9, 300).astype(np.float32)
    weights = weigh(logits, 0.7)
    found = exponents(logits, float(logits.max()), 0.7).tolist()
    fixed = [round(-each * FIXED) for each in found]
    assert min(found) >= -60.0 and max(found) == 0.0
    assert weigh.exponent_sum(logits, weights, 0.7) == sum(w * f for w, f in zip(weights.tolist(), fixed, strict=True))
    apart = [round((float(logits.max()) - each) * FIXED) for each in logits.tolist()]
    assert weigh.spread(logits) == (sum(apart), sum(each * each for each in apart))


def test_rows_that_are_no_rows_are_refused() -> None:
    from twostroke.backends.cpu.library import load_library

    library, at = load_library("generic"), np.zeros(4, np.uint64).ctypes.data
    for count, status in ((0, -1), (4, -5)):
        row = at if status == -1 else None
        assert library.ts_exponent_sums(row, at, count, 0.0, 1.0, at) == status
        assert library.ts_nearness(row, count, 0.0, 1.0, 0.0, at) == status
        assert library.ts_spread_sums(row, count, 0.0, 1.0, at) == status
        assert library.ts_score_near(row, count, 1.0, 0.0, 1.0, 1.0, 1.0, at, at) == status


def test_weights_are_probabilities() -> None:
    logits = np.random.default_rng(0).normal(0, 4, 50_000).astype(np.float32)
    for temperature in (0.1, 0.7, 1.0, 2.0):
        exact = np.exp((logits.astype(np.float64) - logits.max()) / temperature) * 2.0**WEIGHT_BITS
        assert np.abs(weigh(logits, temperature) - exact).max() <= 1.0
    total = int(weigh(logits, 1.0).sum())
    assert ln_of_sum(total) == pytest.approx(np.log(np.exp(logits.astype(np.float64) - logits.max()).sum()), abs=1e-8)
    assert weigh(logits, 1.0).max() == 1 << WEIGHT_BITS


@pytest.mark.parametrize("total", [1 << 44, (1 << 44) + 1, 3 << 43, 1 << 62, (1 << 63) - 1, 123456789 << 30])
def test_the_logarithm_of_a_sum(total: int) -> None:
    assert ln_of_sum(total) == pytest.approx(np.log(float(total)) - 44 * np.log(2.0), rel=1e-15, abs=2e-15)


def test_a_wrong_series_is_refused() -> None:
    from twostroke.backends.cpu.library import load_library

    row, out = np.zeros(4, np.float32), np.zeros(4, np.uint64)
    call = load_library("generic").ts_weigh
    assert call(row.ctypes.data, 4, 0.0, 1.0, row.ctypes.data, 5, out.ctypes.data) == -1
    assert call(row.ctypes.data, 0, 0.0, 1.0, row.ctypes.data, 13, out.ctypes.data) == -1
    assert call(None, 4, 0.0, 1.0, row.ctypes.data, 13, out.ctypes.data) == -5
