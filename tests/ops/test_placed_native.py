"""place_scores, placed_attention and round_rows at every level: their references, each text alone and in company."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, check_guard, guarded
from tests.ops.test_attention_native import batch_of, filled_layer, near, queries
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import place_scores, placed_attention
from twostroke.ops.operands import AttentionBatch
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows import round_rows
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

TEXTS = (1, 40, 70, 150)
"""Tokens of each text: all of its positions are rows of the step."""
REACH, PLACES = 20, 9


@pytest.fixture(scope="module", params=list(itertools.product(LEVELS, (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "heads", "dim", "places"), [(1, 1, 1, 1), (3, 2, 15, 17), (37, 3, 20, 100)])
def test_place_scores(ops: CpuOps, rows: int, heads: int, dim: int, places: int) -> None:
    x, table = drawn(rows, heads, dim, seed=1), drawn(heads * dim * places, seed=2)
    out, law = np.empty((rows, heads, places), np.float32), np.empty((rows, heads, places), np.float32)
    ops.place_scores(out, x, table)
    place_scores.reference(law, x, table)
    np.testing.assert_allclose(out, law, rtol=1e-5, atol=1e-5)
    alone = np.empty((1, heads, places), np.float32)
    ops.place_scores(alone, x[rows - 1 :], table)
    assert np.array_equal(alone[0], out[rows - 1])


@pytest.mark.parametrize("parts", [(True, False, False), (False, True, True), (True, True, True), (False, False, True)])
@pytest.mark.parametrize(
    ("kind", "shape", "dim"), [(KVKind.F32, (2, 3), 20), (KVKind.BF16, (4, 1), 32), (KVKind.INT8, (2, 1), 64)]
)
def test_placed_attention(
    ops: CpuOps, kind: KVKind, shape: tuple[int, int], dim: int, parts: tuple[bool, bool, bool]
) -> None:
    layer, pages = filled_layer(kind, shape[0], dim, TEXTS)
    heads, rows = shape[0] * shape[1], sum(TEXTS)
    q = queries(rows, heads, 2, dim, 99)
    places = np.floor(np.linspace(0, PLACES - 0.01, 2 * REACH + 1)).astype(np.float32)
    table = drawn(heads * PLACES, seed=3) if parts[0] else None
    by_row, by_key = (drawn(rows, heads, PLACES, seed=4 + i) * 3 if parts[1 + i] else None for i in range(2))

    def run(target: object, batch: AttentionBatch, at: slice) -> np.ndarray:
        own = [each if each is None else each[at] for each in (by_row, by_key)]
        out = np.empty(q[at].shape, np.float32)
        target(out, q[at], layer, batch, dim**-0.5, places, table, *own, ALL_AHEAD)  # type: ignore[operator]
        return out

    found = run(ops.placed_attention, batch_of(TEXTS, TEXTS, pages), np.s_[:])
    assert near(ops, layer, found, run(placed_attention.reference, batch_of(TEXTS, TEXTS, pages), np.s_[:]))
    first = sum(TEXTS[:2])
    here = np.s_[first : first + TEXTS[2]]
    alone = run(ops.placed_attention, batch_of(TEXTS[2:3], TEXTS[2:3], pages[2:3]), here)
    assert np.array_equal(alone, found[here])


def test_what_does_not_fit_is_refused(ops: CpuOps) -> None:
    layer, pages = filled_layer(KVKind.F32, 2, 16, TEXTS)
    q, out = queries(4, 2, 0, 16, 99), np.empty((4, 2, 16), np.float32)
    by_key, places = drawn(4, 2, PLACES, seed=1), np.zeros(3, np.float32)
    whole, part = batch_of((4,), (4,), pages[3:]), batch_of((40,), (4,), pages[1:2])
    ops.placed_attention(out, q, layer, whole, 1.0, places, None, None, by_key, ALL_AHEAD)
    for batch, wrong in ((part, places), (whole, places + PLACES), (whole, places[:2])):
        with pytest.raises(BackendError):
            ops.placed_attention(out, q, layer, batch, 1.0, wrong, None, None, by_key, ALL_AHEAD)


@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (3, 15), (19, 200)])
def test_round_rows_gives_the_bits_of_the_reference(ops: CpuOps, shape: tuple[int, int]) -> None:
    x = drawn(*shape, seed=5) * 3
    x[:1] *= 1e-7
    out, room = guarded(*shape)
    ops.round_rows(out, x)
    law = np.empty(shape, np.float32)
    if len(x):
        round_rows.reference(law, x)
    check_guard(out, room)
    assert np.array_equal(out, law)
