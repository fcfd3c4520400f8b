"""Experts in the emulator: the order in which rows name them, rows that name none, and tables of experts by token."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.ops.same_bits import same_bits
from tests.ops.banks import bank
from tests.ops.native import random_rows
from tests.ops.products.test_experts_native import routes_of
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import F32Array
from twostroke.ops.products.route import Scores
from twostroke.types.spec.formats import F32, WeightFormat, WeightKind

INT4 = WeightFormat(WeightKind.INT4, 64)


def room(rows: int, width: int, middle: int) -> tuple[F32Array, F32Array, F32Array]:
    return np.zeros((rows, width), np.float32), np.zeros((rows, middle), np.float32), np.zeros((rows, 2), np.float32)


def test_the_order_in_which_a_row_names_experts_changes_nothing(cpu: CpuOps, gpu: CudaDevice) -> None:
    gate_up, down = bank(6, 128, 40, F32), bank(6, 40, 64, F32)
    x, routes = random_rows(20, 40), routes_of(20, 6, 4)
    turned = np.concatenate((routes[:, :4][:, ::-1], routes[:, 4:][:, ::-1]), axis=1)
    out, rest = np.zeros((20, 40), np.float32), (gate_up, down, *room(20, 40, 64))
    (first,) = same_bits(cpu, gpu, "experts", (out, x, routes, *rest))
    (second,) = same_bits(cpu, gpu, "experts", (out, x, turned, *rest))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("numbers", [(0, 6), (0, -1), (0, 0.5), (0, np.nan), (2, 2)])
def test_a_row_that_names_no_expert_is_nan_and_its_neighbours_are_not(
    gpu: CudaDevice, cpu: CpuOps, numbers: tuple[float, float]
) -> None:
    """The CPU refuses such a call. The host of a device cannot see it."""
    from tests.cuda.ops.operands import run_on

    gate_up, down = bank(6, 128, 40, F32), bank(6, 40, 64, F32)
    x, routes = random_rows(5, 40), routes_of(5, 6, 2)
    rest = (gate_up, down, *room(5, 40, 64))
    clean = run_on(gpu, "experts", np.zeros((5, 40), np.float32), x, routes, *rest)
    routes[3, 2:] = numbers
    found = run_on(gpu, "experts", np.zeros((5, 40), np.float32), x, routes, *rest)
    others = [0, 1, 2, 4]
    assert np.isnan(found[3]).all() and np.array_equal(found[others], clean[others])


@pytest.mark.parametrize("scores", Scores)
@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (13, 3), (256, 6)])
def test_experts_by_token(cpu: CpuOps, gpu: CudaDevice, count: int, chosen: int, scores: Scores) -> None:
    """The table may also name an expert twice, an expert that does not exist, or none."""
    logits, ids = np.array(4 * random_rows(9, count)), np.array([0, 4, 4, 2, 1, 3, 0, 1, 2], np.int32)
    logits[6, 0] = np.inf
    table = np.concatenate([np.random.default_rng(row).permutation(count)[:chosen] for row in range(5)])
    named = table.astype(np.float32)
    named[3 * chosen :] = count + 7.0
    named[4 * chosen :] = np.nan
    operands = (np.zeros((9, 2 * chosen), np.float32), logits, ids, named, int(scores), 1e-20, 1.5)
    (found,) = same_bits(cpu, gpu, "route_by_token", operands, tolerance=None)
    assert np.isnan(found[6, :chosen]).all() and all(len(set(row[chosen:].tolist())) == chosen for row in found)
