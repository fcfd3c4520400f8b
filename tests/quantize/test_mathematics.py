"""Grids, GPTQ and moments, tested by the properties that they must have."""

from __future__ import annotations

import numpy as np
import pytest

from twostroke.quantize.mathematics.gptq import GptqRule, Order, gptq, inverse_factor
from twostroke.quantize.mathematics.grid import GridRule, find_grid
from twostroke.quantize.mathematics.moments import Moments, output_error
from twostroke.quantize.mathematics.scaling import awq_scales, smooth_scales
from twostroke.quantize.mathematics.solved import round_matrix

SYMMETRIC, WITH_ZERO = GridRule(4, symmetric=True), GridRule(4, symmetric=False)


def correlated(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Inputs whose channels are correlated and differ in size."""
    mix = rng.standard_normal((columns // 4, columns))
    sizes = np.exp(rng.standard_normal(columns))
    return ((rng.standard_normal((rows, columns // 4)) @ mix + rng.standard_normal((rows, columns))) * sizes).astype(
        "f4"
    )


def moments_of(x: np.ndarray) -> Moments:
    found = Moments.none(x.shape[1])
    for part in np.array_split(x, 3):
        found.add(part)
    return found


def test_moments_are_sums_over_all_rows():
    x = correlated(np.random.default_rng(0), 90, 16)
    found = moments_of(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(found.hessian, exact.T @ exact, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(found.magnitudes, np.abs(exact).sum(axis=0), rtol=1e-6)
    assert found.rows == 90 and (found.largest == np.abs(x).max(axis=0)).all()


def test_output_error_is_the_squared_error_of_the_outputs():
    rng = np.random.default_rng(1)
    x, change = correlated(rng, 50, 12), rng.standard_normal((5, 12)).astype("f4")
    direct = np.sum((x.astype(np.float64) @ change.astype(np.float64).T) ** 2)
    assert output_error(change, moments_of(x).hessian) == pytest.approx(direct, rel=1e-4)


def test_moments_refuse_what_is_not_finite():
    with pytest.raises(ValueError, match="NaN"):
        Moments.none(4).add(np.array([[1, 2, np.inf, 3]], np.float32))


def test_the_factor_is_the_inverse_s():
    hessian = moments_of(correlated(np.random.default_rng(2), 300, 24)).hessian
    factor = inverse_factor(hessian, 0.01).astype(np.float64)
    damped = hessian.astype(np.float64) + 0.01 * np.mean(np.diag(hessian)) * np.eye(24)
    assert (np.tril(factor, -1) == 0).all()
    np.testing.assert_allclose(factor.T @ factor @ damped, np.eye(24), atol=1e-3)


def test_a_factor_of_nothing_is_refused():
    with pytest.raises(ValueError, match="not positive"):
        inverse_factor(np.full((3, 3), -1, np.float32), 0.01)


@pytest.mark.parametrize("rule", [SYMMETRIC, WITH_ZERO])
def test_codes_are_the_nearest_of_the_grid(rule):
    values = np.random.default_rng(3).standard_normal((6, 32)).astype(np.float32)
    grid = find_grid(values, rule)
    every = grid.values(np.tile(np.arange(16, dtype=np.float32), (6, 1)))
    best = np.abs(values[:, :, None] - every[:, None, :]).min(axis=2)
    np.testing.assert_allclose(np.abs(grid.values(grid.codes(values)) - values), best, atol=1e-6)
    assert (grid.scales.astype(np.float16).astype(np.float32) == grid.scales).all()


def test_a_searched_grid_errs_no_more_than_one_of_the_extremes():
    values = np.random.default_rng(4).standard_t(3, (40, 128)).astype(np.float32)
    for symmetric in (True, False):
        plain = find_grid(values, GridRule(4, symmetric, searched=False))
        found = find_grid(values, GridRule(4, symmetric))
        errors = [np.sum((g.values(g.codes(values)) - values) ** 2, axis=1) for g in (plain, found)]
        assert (errors[1] <= errors[0] * (1 + 1e-6)).all() and errors[1].sum() < 0.95 * errors[0].sum()


@pytest.mark.parametrize("order", Order)
def test_inputs_without_correlation_leave_nothing_to_correct(order):
    """With equal moments on the diagonal alone, GPTQ gives the nearest code of the same grids."""
    matrix = np.random.default_rng(5).standard_normal((7, 256)).astype(np.float32)
    solved = gptq(matrix, np.eye(256, dtype=np.float32) * 3, GptqRule(SYMMETRIC, 64, order))
    rounded = round_matrix(matrix, SYMMETRIC, 64)
    assert (solved.codes == rounded.codes).all() and (solved.scales == rounded.scales).all() and solved.in_order


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("rule", [SYMMETRIC, WITH_ZERO])
def test_outputs_err_less_than_with_the_nearest_codes(order, rule):
    rng = np.random.default_rng(6)
    matrix, moments = rng.standard_normal((32, 256)).astype("f4"), moments_of(correlated(rng, 2000, 256))
    solved = gptq(matrix, moments.hessian, GptqRule(rule, 64, order))
    rounded = round_matrix(matrix, rule, 64)
    errors = [output_error(each.values() - matrix, moments.hessian) for each in (solved, rounded)]
    assert errors[0] < 0.5 * errors[1]
    assert sorted(np.bincount(solved.group_of)) == [64] * 4
    assert solved.in_order == (order is Order.FIXED)


def test_a_row_s_codes_depend_on_that_row_alone():
    rng = np.random.default_rng(7)
    matrix, moments = rng.standard_normal((9, 128)).astype("f4"), moments_of(correlated(rng, 500, 128))
    rule = GptqRule(SYMMETRIC, 32, Order.MOVED)
    whole, part = gptq(matrix, moments.hessian, rule), gptq(matrix[3:5], moments.hessian, rule)
    assert (whole.rows(3, 2).codes == part.codes).all() and (whole.rows(3, 2).scales == part.scales).all()


def test_groups_wider_than_a_block_are_found_as_their_first_column_is_rounded():
    rng = np.random.default_rng(8)
    matrix, moments = rng.standard_normal((16, 512)).astype("f4"), moments_of(correlated(rng, 2000, 512))
    wide = gptq(matrix, moments.hessian, GptqRule(GridRule(8, symmetric=True), 512, Order.MOVED))
    rounded = round_matrix(matrix, GridRule(8, symmetric=True), 512)
    assert output_error(wide.values() - matrix, moments.hessian) < output_error(
        rounded.values() - matrix, moments.hessian
    )


def test_awq_scales_make_columns_with_large_inputs_finer():
    rng = np.random.default_rng(10)
    x = rng.standard_normal((600, 64)).astype("f4")
    x[:, 7] *= 40
    matrix, moments = rng.standard_normal((48, 64)).astype("f4"), moments_of(x)

    def rounded(each: np.ndarray) -> np.ndarray:
        return round_matrix(each, WITH_ZERO, 32).values()

    for exact in (True, False):
        scales = awq_scales(matrix, moments, rounded, exact)
        assert scales[7] == scales.max() > 2 * np.median(scales)
        errors = [
            output_error(change, moments.hessian)
            for change in (rounded(matrix) - matrix, rounded(matrix * scales) / scales - matrix)
        ]
        assert errors[1] < 0.7 * errors[0]
        assert not exact or (np.log2(scales) == np.rint(np.log2(scales))).all()


def test_smooth_scales_share_what_is_large_between_inputs_and_weights():
    x, matrix = np.ones((4, 16), np.float32), np.ones((3, 16), np.float32)
    x[:, 2] *= 256
    scales = smooth_scales(matrix, moments_of(x), exact=True)
    assert scales[2] / scales[0] == 16


def test_inputs_that_are_always_zero_do_no_harm():
    rng = np.random.default_rng(9)
    x = correlated(rng, 400, 64)
    x[:, 10:20] = 0
    matrix = rng.standard_normal((4, 64)).astype("f4")
    solved = gptq(matrix, moments_of(x).hessian, GptqRule(SYMMETRIC, 32, Order.FIXED))
    assert np.isfinite(solved.values()).all()
    assert np.abs(solved.values() - matrix).max() < 1
