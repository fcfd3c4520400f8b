"""Rotated columns: the matrix is Hadamard's, products do not change, and outliers cost less accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import LEVELS
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array
from twostroke.ops.products.linear import reference
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import FORMATS
from twostroke.ops.rotation import rotated_columns, rotated_weights
from twostroke.ops.unpack import unpack
from twostroke.types.spec.formats import ROTATED_COLUMNS, WeightFormat, WeightKind

PLAIN, ROTATED = WeightFormat(WeightKind.INT8, 256), WeightFormat(WeightKind.INT8, 256, ROTATED_COLUMNS)
COLUMNS = [1, 31, 63, 64, 65, 576, 640, 1152, 2880]
"""Numbers of columns that are one block, many blocks, or no whole blocks; some are those of published models."""


def hadamard() -> F32Array:
    indices = np.arange(ROTATED_COLUMNS)
    shared = indices[:, None] & indices
    odd = np.array([[bin(bits).count("1") % 2 for bits in row] for row in shared])
    return (1 - 2 * odd).astype(np.float32)


def outliers(rows: int, columns: int, seed: int) -> F32Array:
    """Gaussian rows in which a few columns are 40 times as large, as in activations of trained models."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    values[:, rng.integers(0, columns, max(1, columns // 100))] *= 40
    return values


def test_the_matrix_is_that_of_hadamard() -> None:
    np.testing.assert_array_equal(rotated_columns(np.eye(ROTATED_COLUMNS, dtype=np.float32)), hadamard())
    np.testing.assert_array_equal(hadamard() @ hadamard(), ROTATED_COLUMNS * np.eye(ROTATED_COLUMNS))


@pytest.mark.parametrize("columns", COLUMNS)
def test_products_stay_what_they_were(columns: int) -> None:
    x, w = outliers(3, columns, 1).astype(np.float64), outliers(5, columns, 2).astype(np.float64)
    found = rotated_columns(x.astype(np.float32)).astype(np.float64) @ rotated_weights(w.astype(np.float32)).T
    np.testing.assert_allclose(found, x @ w.T, atol=1e-4 * np.abs(x @ w.T).max())


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_table_comes_back_as_it_was(columns: int) -> None:
    values = np.random.default_rng(columns).standard_normal((70, columns), dtype=np.float32)
    found = unpack(pack_weight(values, ROTATED))
    assert found.shape == values.shape
    assert np.sqrt(np.mean((found - values) ** 2)) < 0.01  # one column in a block: 64 equal errors


@pytest.mark.parametrize("columns", [576, 640, 1152, 2880])
@pytest.mark.parametrize("level", LEVELS)
def test_large_channels_cost_half_of_what_they_cost_without(columns: int, level: str) -> None:
    x, w = outliers(8, columns, 3), np.random.default_rng(4).standard_normal((96, columns), dtype=np.float32)
    expected = x.astype(np.float64) @ w.T.astype(np.float64)
    errors, ops = [], CpuOps(level, 1)
    for weight_format in (PLAIN, ROTATED):
        out = np.empty((8, 96), np.float32)
        ops.linear(out, x, pack_weight(w, weight_format))
        errors.append(np.sqrt(np.mean((out - expected) ** 2)))
    ops.close()
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_a_number_stays_in_its_row(level: str) -> None:
    x = outliers(3, 130, 5)
    x[1, 7], x[2, 129] = np.nan, np.inf
    weight, out = pack_weight(outliers(64, 130, 6), ROTATED), np.empty((3, 64), np.float32)
    alone = np.empty((1, 64), np.float32)
    ops = CpuOps(level, 1)
    ops.linear(out, x, weight)
    ops.linear(alone, x[:1], weight)
    ops.close()
    np.testing.assert_array_equal(out[:1], alone)
    assert np.isnan(out[1:]).all()
    with np.errstate(invalid="ignore"):
        reference(expected := np.empty_like(out), x, weight)
    assert np.isnan(expected[1:]).all()


def test_own_formats_are_rotated() -> None:
    assert {FORMATS[name].rotated for name in ("int8", "int6", "int4")} == {ROTATED_COLUMNS}
