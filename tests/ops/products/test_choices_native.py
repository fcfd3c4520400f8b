"""Numbers without a matrix, and experts next to idle ones, at every level."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.banks import bank
from tests.ops.native import check_guard, format_id, guarded, random_rows
from tests.ops.products.test_experts_native import routes_of
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import experts, idle_share
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import BF16, F32, WeightFormat, WeightKind

FORMATS = [F32, BF16, WeightFormat(WeightKind.INT8, 64), WeightFormat(WeightKind.INT4, 64)]


def multiplied(ops: CpuOps, x: F32Array, routes: F32Array, weight: PackedWeight) -> F32Array:
    """The op's result, with guards around its room."""
    rows, choices = len(x), routes.shape[1] // 2
    areas = [guarded(rows, width) for width in (choices * weight.rows, weight.columns, weight.rows)]
    (out, _), (gathered, _), (made, _) = areas
    ops.chosen_linear(out.reshape(rows, choices, weight.rows), x, routes, weight, gathered, made)
    for each, room in areas:
        check_guard(each, room)
    return out.reshape(rows, choices, weight.rows)


@pytest.mark.parametrize("number", [5.0, -1.0, 0.5, np.nan])
def test_numbers_of_no_matrix_are_refused(ops: CpuOps, number: float) -> None:
    routes = routes_of(4, 5, 2)
    routes[2, 3] = number
    with pytest.raises(BackendError):
        multiplied(ops, random_rows(4, 40).reshape(4, 1, 40), routes, bank(5, 65, 40, F32))


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
def test_idle_experts_add_nothing_and_are_counted(ops: CpuOps, weight_format: WeightFormat) -> None:
    """Some rows chose only idle experts."""
    gate_up, down = bank(4, 128, 40, weight_format), bank(4, 40, 64, weight_format)
    x, routes = np.ascontiguousarray(random_rows(30, 40)), routes_of(30, 9, 3)
    routes[4:6, 3:] = [8, 5, 4]
    found = run_idle(ops, x, routes, gate_up, down)
    expected, room = np.empty((30, 40), np.float32), np.empty((30, 64), np.float32)
    operands = (x.copy(), room, np.empty((30, 2), np.float32), 0, 0.0, 0.0, 0, 5)
    experts.Experts.reference(expected, x, routes, gate_up, down, *operands)
    tolerance = 0.03 if weight_format.group else 1e-4
    assert np.allclose(found, expected, rtol=tolerance, atol=tolerance * float(np.abs(expected).max()))
    assert not found[4:6].any() and np.array_equal(run_idle(ops, x[3:5], routes[3:5], gate_up, down), found[3:5])
    assert not run_idle(ops, x[4:6], routes[4:6], gate_up, down).any()
    shares, law = np.empty((30, 1), np.float32), np.empty((30, 1), np.float32)
    ops.idle_share(shares, routes, 4)
    idle_share.reference(law, routes, 4)
    assert np.array_equal(shares, law) and np.allclose(shares[4:6, 0], routes[4:6, :3].sum(axis=1))
    routes[9, 3] = 9
    with pytest.raises(BackendError):
        run_idle(ops, x, routes, gate_up, down)


def run_idle(ops: CpuOps, x: F32Array, routes: F32Array, gate_up: PackedWeight, down: PackedWeight) -> F32Array:
    """Runs experts next to five idle ones."""
    rows = len(x)
    out, room = np.full((rows, 40), 7, np.float32), np.empty((rows, 64), np.float32)
    operands = (np.empty((rows, 40), np.float32), room, np.empty((rows, 2), np.float32), 0, 0.0, 0.0, 0, 5)
    ops.experts(out, np.ascontiguousarray(x), np.ascontiguousarray(routes), gate_up, down, *operands)
    return out
