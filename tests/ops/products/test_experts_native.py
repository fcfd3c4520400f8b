"""route and experts at every level: rules of choosing, steps of several waves, and refused calls."""

from __future__ import annotations

import numpy as np
import pytest
from tools.gpu.stored_values import random_values

from tests.ops.banks import bank, joined
from tests.ops.native import check_guard, format_id, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import experts, route
from twostroke.ops.products.route import Scores
from twostroke.ops.quant.codec import _aligned
from twostroke.ops.quant.formats import INT8
from twostroke.ops.stored_layout import pack_stored
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32, STORED_GROUP, WeightFormat, WeightKind

ROWS = 70
"""Enough rows for blocks of rows of one expert."""


def routed(ops: CpuOps, logits: F32Array, chosen: int, normalised: int) -> F32Array:
    out, room = guarded(len(logits), 2 * chosen)
    ops.route(out, logits, normalised)
    check_guard(out, room)
    return out


def test_a_bias_chooses_and_does_not_weigh(ops: CpuOps) -> None:
    logits, bias = np.array([[2, 1, 0, -1]], np.float32), np.array([-1, 0, 0, 1], np.float32)
    for of in (ops.route, route.Route.reference):
        made = np.empty((1, 4), np.float32)
        of(made, logits, 0, bias, Scores.SIGMOID)
        assert made[0, 2:].tolist() == [3, 1]
        np.testing.assert_allclose(made[0, :2], 1 / (1 + np.exp([1.0, -1.0])), rtol=1e-6)


def test_shares_multiply_the_weights_of_the_chosen(ops: CpuOps) -> None:
    logits = 2 * random_rows(33, 40)
    shares = np.ascontiguousarray(1 + 0.3 * random_rows(1, 40)[0])
    rule = (1, None, Scores.SOFTMAX, 1, 1, 1, 0.0, 0.0, 1.0)
    plain, expected = routed(ops, logits, 4, 1), np.empty((33, 8), np.float32)
    found, room = guarded(33, 8)
    route.Route.reference(expected, logits, *rule, shares)
    ops.route(found, logits, *rule, shares)
    check_guard(found, room)
    assert np.array_equal(found[:, 4:], expected[:, 4:])
    assert np.array_equal(found[:, :4], plain[:, :4] * shares[plain[:, 4:].astype(int)])
    np.testing.assert_allclose(found[:, :4], expected[:, :4], rtol=3e-6)
    with pytest.raises(BackendError):
        ops.route(found, logits, *rule, shares[:39])


def test_of_equal_groups_the_earlier_is_kept(ops: CpuOps) -> None:
    logits, bias = np.zeros((1, 8), np.float32), np.array([0, 0, 1, 1, 1, 1, 0, 2], np.float32)
    made = np.empty((1, 4), np.float32)
    for kept, expected in ((1, [2, 3]), (2, [2, 3]), (3, [7, 2])):
        ops.route(made, logits, 0, bias, Scores.SIGMOID, 4, kept, 2)
        assert made[0, 2:].tolist() == expected, kept


@pytest.mark.parametrize(
    "wrong", [(9,), (Scores.SIGMOID, 3), (Scores.SIGMOID, 4, 5), (Scores.SIGMOID, 4, 1, 3), (Scores.SIGMOID, 8, 1)]
)
def test_rules_that_cannot_be_are_refused(ops: CpuOps, wrong: tuple[int, ...]) -> None:
    with pytest.raises(BackendError):
        ops.route(np.empty((2, 4), np.float32), np.zeros((2, 8), np.float32), 0, None, *wrong)


def test_of_equal_logits_the_lower_number_comes_first(ops: CpuOps) -> None:
    logits = np.array([[1, 2, 2, 0, 2], [0, 0, 0, 0, 0], [-3, -1, -1, -2, -1]], np.float32)
    expected = np.empty((3, 6), np.float32)
    route.Route.reference(expected, logits, 0)
    for found in (expected, routed(ops, logits, 3, 0)):
        assert found[:, 3:].tolist() == [[1, 2, 4], [0, 1, 2], [1, 2, 4]]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_row_without_usable_logits_has_different_experts_and_no_usable_weights(ops: CpuOps, wrong: float) -> None:
    for place in range(5):
        logits = np.array(random_rows(3, 5))
        clean = routed(ops, logits, 2, 1)
        logits[1, place] = wrong
        found, law = routed(ops, logits, 2, 1), np.empty((3, 4), np.float32)
        route.Route.reference(law, logits, 1)
        assert np.array_equal(found[[0, 2]], clean[[0, 2]])
        for each in (found[1], law[1]):
            assert np.isnan(each[:2]).all() and each[2] != each[3] and set(each[2:]) <= set(range(5))


def test_more_experts_than_there_are_cannot_be_chosen(ops: CpuOps) -> None:
    for count, width in ((3, 8), (3, 5), (1025, 4)):
        with pytest.raises(BackendError):
            ops.route(np.empty((2, width), np.float32), np.zeros((2, count), np.float32), 1)


def test_what_a_sparse_mixer_cannot_choose_is_refused(ops: CpuOps) -> None:
    for width, jitter in ((14, 0.1), (3, 0.1), (4, -0.1), (4, float("nan"))):
        with pytest.raises(BackendError):
            ops.sparse_mixer(np.empty((2, width), np.float32), np.zeros((2, 6), np.float32), jitter)


def routes_of(rows: int, count: int, chosen: int) -> F32Array:
    """All rows choose the last expert; some rows or none choose each of the others."""
    logits = np.array(random_rows(rows, count))
    logits[:, count // 2 :] -= 3
    logits[:, -1] += 9
    out = np.empty((rows, 2 * chosen), np.float32)
    route.Route.reference(out, logits, 1)
    return out


def mixed(ops: CpuOps, x: F32Array, routes: F32Array, gate_up: PackedWeight, down: PackedWeight) -> F32Array:
    """The op's result, with guards around all room."""
    rows, width = x.shape
    areas = [guarded(rows, columns) for columns in (width, width, down.columns, 2)]
    (out, _), *scratch = areas
    ops.experts(out, x, routes, gate_up, down, *(each for each, _ in scratch))
    for each, room in areas:
        check_guard(each, room)
    return out


def stored_bank(count: int, rows: int, columns: int, kind: WeightKind) -> PackedWeight:
    """Matrices that keep a file's codes, each with other values."""
    form = WeightFormat(kind, STORED_GROUP)
    packed = [_aligned(pack_stored(random_values(kind, rows, columns, seed), form)) for seed in range(count)]
    return joined([PackedWeight(form, rows, columns, data) for data in packed])


def test_experts_whose_codes_are_a_files_are_the_references(ops: CpuOps) -> None:
    """Banks of two kinds, as GGUF files have them."""
    gate_up, down = stored_bank(4, 512, 96, WeightKind.E2M1_32), stored_bank(4, 96, 256, WeightKind.SUPER4_MIN)
    x, routes = random_rows(ROWS, 96), routes_of(ROWS, 4, 2)
    found, law = mixed(ops, x, routes, gate_up, down), np.empty((ROWS, 96), np.float32)
    room = np.empty((ROWS, 96), np.float32), np.empty((ROWS, 256), np.float32), np.empty((ROWS, 2), np.float32)
    experts.Experts.reference(law, x, routes, gate_up, down, *room)
    np.testing.assert_allclose(found, law, rtol=0, atol=0.03 * float(np.abs(law).max()))
    for part in (slice(0, 1), slice(17, 18), slice(30, 35), slice(4, 37)):
        assert np.array_equal(mixed(ops, x[part], routes[part], gate_up, down), found[part])


@pytest.mark.parametrize("weight_format", [F32, INT8], ids=format_id)
def test_a_step_of_several_waves_is_as_its_rows_alone(ops: CpuOps, weight_format: WeightFormat) -> None:
    """1,400 pairs, some hundred rows for each expert: several waves, and several parts of one expert."""
    gate_up, down = bank(3, 80, 64, weight_format, True), bank(3, 64, 40, weight_format, True)
    x, routes = random_rows(700, 64), routes_of(700, 3, 2)
    found = mixed(ops, x, routes, gate_up, down)
    for part in (slice(0, 1), slice(350, 420), slice(699, 700)):
        assert np.array_equal(mixed(ops, x[part], routes[part], gate_up, down), found[part])


def test_experts_are_added_in_the_order_of_their_numbers(ops: CpuOps) -> None:
    """The order in which a row names them does not matter."""
    gate_up, down = bank(6, 128, 40, F32), bank(6, 40, 64, F32)
    x, routes = random_rows(20, 40), routes_of(20, 6, 4)
    turned = np.concatenate((routes[:, :4][:, ::-1], routes[:, 4:][:, ::-1]), axis=1)
    assert np.array_equal(mixed(ops, x, routes, gate_up, down), mixed(ops, x, turned, gate_up, down))


def test_a_row_with_nan_leaves_its_neighbours_alone(ops: CpuOps) -> None:
    gate_up, down = bank(6, 128, 40, F32), bank(6, 40, 64, F32)
    x, routes = np.array(random_rows(20, 40)), routes_of(20, 6, 2)
    clean = mixed(ops, x, routes, gate_up, down)
    x[7, 3], routes[9, 0] = np.nan, np.nan
    found = mixed(ops, x, routes, gate_up, down)
    others = [row for row in range(20) if row not in (7, 9)]
    assert np.array_equal(found[others], clean[others]) and np.isnan(found[[7, 9]]).all()


@pytest.mark.parametrize("numbers", [(0, 6), (0, -1), (0, 0.5), (0, np.nan), (2, 2)])
def test_numbers_that_are_no_experts_are_refused(ops: CpuOps, numbers: tuple[float, float]) -> None:
    gate_up, down = bank(6, 128, 40, F32), bank(6, 40, 64, F32)
    routes = routes_of(5, 6, 2)
    routes[3, 2:] = numbers
    out = np.full((5, 40), 7, np.float32)
    room = np.empty((5, 40), np.float32), np.empty((5, 64), np.float32), np.empty((5, 2), np.float32)
    with pytest.raises(BackendError, match="index"):
        ops.experts(out, random_rows(5, 40), routes, gate_up, down, *room)
    assert np.all(out == 7)


@pytest.mark.parametrize("shape", [(5, 126, 40, 64), (6, 126, 40, 64), (6, 128, 40, 63), (0, 128, 40, 64)])
def test_banks_that_do_not_fit_each_other_are_refused(ops: CpuOps, shape: tuple[int, int, int, int]) -> None:
    count, rows, width, inner = shape
    one = PackedWeight(F32, rows, width, bank(6, rows, width, F32).expert(0).data)
    gate_up, down = bank(count, rows, width, F32) if count else one, bank(6, width, inner, F32)
    out = np.full((5, width), 7, np.float32)
    room = np.empty((5, width), np.float32), np.empty((5, inner), np.float32), np.empty((5, 2), np.float32)
    with pytest.raises(BackendError):
        ops.experts(out, random_rows(5, width), routes_of(5, 6, 2), gate_up, down, *room)
    assert np.all(out == 7)
