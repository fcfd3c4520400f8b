"""Experts in the emulator: how rows choose, banks of every format, every kind of expert; bit for bit as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cuda.same_bits import same_bits
from tests.ops.banks import bank
from tests.ops.native import FORMATS, format_id, random_rows
from tests.ops.test_experts_native import KINDS, RULES, routes_of
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import F32Array
from twostroke.ops.products.route import Scores
from twostroke.ops.rows.activation import Activation
from twostroke.types.spec.formats import BF16, F32, WeightFormat, WeightKind

INT4 = WeightFormat(WeightKind.INT4, 64)


@pytest.mark.parametrize("normalised", [0, 1])
@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (8, 2), (15, 3), (16, 16), (128, 8)])
def test_routes(cpu: CpuOps, gpu: CudaDevice, count: int, chosen: int, normalised: int) -> None:
    logits = np.array(3 * random_rows(9, count))
    logits[2], logits[3, -1], logits[4, 0] = 0.0, np.nan, np.inf
    same_bits(cpu, gpu, "route", (np.zeros((9, 2 * chosen), np.float32), logits, normalised))


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("count", "chosen"), [(16, 3), (256, 8)])
def test_rules_of_choosing(cpu: CpuOps, gpu: CudaDevice, count: int, chosen: int, rule: tuple[Any, ...]) -> None:
    logits, bias = 2 * random_rows(5, count), np.ascontiguousarray(0.2 * random_rows(1, count)[0])
    out = np.zeros((5, 2 * chosen), np.float32)
    same_bits(cpu, gpu, "route", (out, logits, 1, bias if rule[0] else None, *rule[1:]))


def test_shares_of_experts(cpu: CpuOps, gpu: CudaDevice) -> None:
    shares = np.ascontiguousarray(random_rows(1, 16)[0])
    rule = (None, 1, 1, 1, 1, 0.0, 0.0, 1.0, shares)
    same_bits(cpu, gpu, "route", (np.zeros((5, 6), np.float32), 2 * random_rows(5, 16), 1, *rule))


@pytest.mark.parametrize("jitter", [0.0, 0.01, 0.4])
@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (6, 2), (41, 5)])
def test_a_sparse_mixer(cpu: CpuOps, gpu: CudaDevice, count: int, chosen: int, jitter: float) -> None:
    logits = np.array(random_rows(9, count))
    logits[3], logits[7, -1], logits[8, -1] = logits[3, 0], np.nan, np.inf
    found = same_bits(cpu, gpu, "sparse_mixer", (np.zeros((9, 2 * chosen), np.float32), logits, jitter), tolerance=None)
    assert np.isnan(found[0][7:, :chosen]).all() and np.isfinite(found[0][:7]).all()


def room(rows: int, width: int, middle: int) -> tuple[F32Array, F32Array, F32Array]:
    return np.zeros((rows, width), np.float32), np.zeros((rows, middle), np.float32), np.zeros((rows, 2), np.float32)


@pytest.mark.parametrize("weight_format", [F32, BF16, *thinned(FORMATS[2:], "experts on a device", 3)], ids=format_id)
@pytest.mark.parametrize(
    ("width", "inner", "chosen", "biased", "rows"),
    [(40, 1, 1, False, 130), (64, 112, 2, False, 70), (130, 65, 3, True, 44), (300, 64, 6, True, 3)],
)
def test_experts_of_every_format(
    cpu: CpuOps,
    gpu: CudaDevice,
    width: int,
    inner: int,
    chosen: int,
    biased: bool,
    rows: int,
    weight_format: WeightFormat,
) -> None:
    gate_up, down = bank(6, 2 * inner, width, weight_format, biased), bank(6, width, inner, weight_format, biased)
    x, routes = np.ascontiguousarray(random_rows(rows, width)), routes_of(rows, 6, chosen)
    operands = (np.full((rows, width), 7, np.float32), x, routes, gate_up, down, *room(rows, width, inner))
    same_bits(cpu, gpu, "experts", operands, tolerance=0.03 if weight_format.group else 1e-4)


@pytest.mark.parametrize("weight_format", [F32, INT4], ids=format_id)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_kind_of_expert(cpu: CpuOps, gpu: CudaDevice, kind: tuple[Any, ...], weight_format: WeightFormat) -> None:
    times, activation, limit, *_ = kind
    gate_up, down = bank(6, times * 65, 130, weight_format, True), bank(6, 130, 65, weight_format, True)
    middle = 65 * (2 if times == 2 and (activation != Activation.SILU or limit) else 1)
    x, routes = np.ascontiguousarray(random_rows(9, 130)), routes_of(9, 6, 2)
    operands = (np.zeros((9, 130), np.float32), x, routes, gate_up, down, *room(9, 130, middle), *kind[1:])
    same_bits(cpu, gpu, "experts", operands, tolerance=0.05 if weight_format.group else 1e-4)


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
    """The CPU refuses such a call; the host of a device cannot see it."""
    from tests.cuda.operands import run_on

    gate_up, down = bank(6, 128, 40, F32), bank(6, 40, 64, F32)
    x, routes = random_rows(5, 40), routes_of(5, 6, 2)
    rest = (gate_up, down, *room(5, 40, 64))
    clean = run_on(gpu, "experts", np.zeros((5, 40), np.float32), x, routes, *rest)
    routes[3, 2:] = numbers
    found = run_on(gpu, "experts", np.zeros((5, 40), np.float32), x, routes, *rest)
    others = [0, 1, 2, 4]
    assert np.isnan(found[3]).all() and np.array_equal(found[others], clean[others])


@pytest.mark.parametrize("weight_format", [F32, INT4], ids=format_id)
@pytest.mark.parametrize("rows", [3, 40])
def test_idle_experts(cpu: CpuOps, gpu: CudaDevice, rows: int, weight_format: WeightFormat) -> None:
    gate_up, down = bank(4, 128, 40, weight_format), bank(4, 40, 64, weight_format)
    x, routes = np.ascontiguousarray(random_rows(rows, 40)), routes_of(rows, 9, 3)
    routes[1, 3:] = [8, 5, 4]
    operands = (np.zeros((rows, 40), np.float32), x, routes, gate_up, down, *room(rows, 40, 64), 0, 0.0, 0.0, 0, 5)
    same_bits(cpu, gpu, "experts", operands, tolerance=0.05 if weight_format.group else 1e-4)
    same_bits(cpu, gpu, "idle_share", (np.zeros((rows, 1), np.float32), routes, 4))


@pytest.mark.parametrize("weight_format", [F32, BF16, INT4], ids=format_id)
@pytest.mark.parametrize("vectors", [1, 3])
def test_products_of_choices(cpu: CpuOps, gpu: CudaDevice, vectors: int, weight_format: WeightFormat) -> None:
    weight, routes = bank(5, 65, 130, weight_format, True), routes_of(50, 5, 3)
    x = np.ascontiguousarray(random_rows(50, vectors * 130)).reshape(50, vectors, 130)
    space = np.zeros((50, 130), np.float32), np.zeros((50, 65), np.float32)
    operands = (np.zeros((50, 3, 65), np.float32), x, routes, weight, *space)
    same_bits(cpu, gpu, "chosen_linear", operands, tolerance=0.05 if weight_format.group else 1e-4)


@pytest.mark.parametrize("scores", Scores)
@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (13, 3), (256, 6)])
def test_experts_by_token(cpu: CpuOps, gpu: CudaDevice, count: int, chosen: int, scores: Scores) -> None:
    """Also where a table names an expert twice, one that is not there, or none."""
    logits, ids = np.array(4 * random_rows(9, count)), np.array([0, 4, 4, 2, 1, 3, 0, 1, 2], np.int32)
    logits[6, 0] = np.inf
    table = np.concatenate([np.random.default_rng(row).permutation(count)[:chosen] for row in range(5)])
    named = table.astype(np.float32)
    named[3 * chosen :] = count + 7.0
    named[4 * chosen :] = np.nan
    operands = (np.zeros((9, 2 * chosen), np.float32), logits, ids, named, int(scores), 1e-20, 1.5)
    (found,) = same_bits(cpu, gpu, "route_by_token", operands, tolerance=None)
    assert np.isnan(found[6, :chosen]).all() and all(len(set(row[chosen:].tolist())) == chosen for row in found)
