"""Entries at every level: how they are made, written, chosen and attended to, each row alone and in company. Then the
ops of mixed streams, and experts by token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, Answers, random_rows
from tests.ops.test_latent_native import batch_of, normal, queries, slots_of, whole_numbers
from tests.ops.test_states_native import check
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import entry_attention, entry_select, entry_write
from twostroke.ops.attention.entries import entry_cache, places
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array, KVLayer, new_kv_layer
from twostroke.ops.products import route_by_token
from twostroke.ops.products.route import Scores
from twostroke.ops.rows import stream_shares, weigh_streams
from twostroke.ops.states import compress
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

CONTEXTS, COUNTS = (1, 40, 150, 600), (1, 1, 70, 9)
ROWS = sum(COUNTS)


@pytest.fixture(scope="module", params=list(itertools.product(LEVELS, (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()


def empty_layer(kind: KVKind, pages: int, dim: int, rate: int) -> KVLayer:
    """Every number is NaN, or has a scale that is."""
    numbers = entry_cache(dim, rate).head_dim
    layer = new_kv_layer(kind, pages, 1, numbers, numbers, is_latent=True)
    layer.data.view(np.uint8)[...] = 0xFF
    return layer


def filled(kind: KVKind, dim: int, rate: int, whole: bool = False) -> tuple[KVLayer, np.ndarray]:
    """A layer with the entries of all positions of CONTEXTS, and a scattered page table."""
    each = -(-max(CONTEXTS) // PAGE_TOKENS)
    layer = empty_layer(kind, each * len(CONTEXTS) + 1, dim, rate)
    order = np.random.default_rng(9).permutation(each * len(CONTEXTS)).astype(np.int32)
    table = np.ascontiguousarray(order.reshape(len(CONTEXTS), each))
    for s, context in enumerate(CONTEXTS):
        rows = whole_numbers(context, dim, seed=10 + s) if whole else normal(context, dim, seed=10 + s)
        positions = np.arange(context, dtype=np.int32)
        entry_write.reference(layer, rows, slots_of(table[s], context), positions, rate)
    return layer, table


def alone(batch: AttentionBatch, s: int, row: int) -> AttentionBatch:
    position = CONTEXTS[s] - (int(batch.row_starts[s + 1]) - row)
    return batch_of((position + 1,), (1,), batch.page_table[s : s + 1])


@pytest.mark.parametrize(("kind", "dim", "rate"), itertools.product(KVKind, (2, 40, 512), (1, 4, 6, 24, 128)))
def test_entry_write_is_the_reference_bit_for_bit(ops: CpuOps, kind: KVKind, dim: int, rate: int) -> None:
    rows, positions = normal(260, dim), np.arange(3, 263, dtype=np.int32)
    slots = slots_of(np.random.default_rng(3).permutation(20), 263)[3:]
    found, expected = empty_layer(kind, 20, dim, rate), empty_layer(kind, 20, dim, rate)
    ops.entry_write(found, rows, slots, positions, rate)
    entry_write.reference(expected, rows, slots, positions, rate)
    assert np.array_equal(found.data.view(np.uint8), expected.data.view(np.uint8))
    assert places(rate) * rate >= PAGE_TOKENS


SEEN = list(itertools.product(KVKind, (20, 64), (1, 5), ((1, 24), (1, 700), (4, 0), (24, 0))))


@pytest.mark.parametrize(("kind", "dim", "heads", "sees"), thinned(SEEN, "entry_attention"))
def test_entry_attention(ops: CpuOps, kind: KVKind, dim: int, heads: int, sees: tuple[int, int]) -> None:
    """It sees windows, all entries after another call began, and choices; and a row computed alone has the same
    bits."""
    layer, table = filled(kind, dim, sees[0])
    batch, q = batch_of(CONTEXTS, COUNTS, table), queries(ROWS, heads, dim, 90)
    before, sinks = normal(ROWS, heads, dim + 2, seed=4), normal(heads, seed=5)
    before[:, :, dim + 1] = 1 + np.abs(before[:, :, dim + 1])
    chosen = np.full((ROWS, 9), -1, np.float32)
    for row in range(ROWS):
        chosen[row, : 1 + row % 9] = np.sort(np.random.default_rng(row).permutation(25)[: 1 + row % 9])
    for picked, first, last, width in (
        (None, None, None, dim + 2),
        (chosen, before, sinks, dim),
        (None, before, None, dim),
    ):
        found, law = (np.empty((ROWS, heads, width), np.float32) for _ in range(2))
        ops.entry_attention(found, q, picked, first, layer, batch, last, 0.1, *sees)
        if Answers.checked:
            entry_attention.reference(law, q, picked, first, layer, batch, last, 0.1, *sees)
            np.testing.assert_allclose(found, law, atol=3e-5, rtol=2e-4)
        for s, row in ((1, 1), (2, 40), (3, 75)):
            part, out = slice(row, row + 1), np.empty((1, heads, width), np.float32)
            some = (None if each is None else each[part] for each in (picked, first))
            ops.entry_attention(out, q[part], *some, layer, alone(batch, s, row), last, 0.1, *sees)
            assert np.array_equal(out[0], found[row])


def test_an_entry_that_is_not_a_number_is_seen_by_those_who_see_it(ops: CpuOps) -> None:
    layer, table = filled(KVKind.F32, 20, 4)
    ops.entry_write(
        layer, np.full((1, 20), np.nan, np.float32), slots_of(table[2], 150)[99:100], np.array([99], np.int32), 4
    )
    q, batch = queries(150, 3, 20, 7), batch_of((150,), (150,), table[2:3])
    found = np.empty((150, 3, 20), np.float32)
    ops.entry_attention(found, q, None, None, layer, batch, normal(3), 0.1, 4, 0)
    assert np.isfinite(found[:99]).all() and np.isnan(found[99:]).all()
    ops.entry_attention(found, q, None, None, layer, batch, normal(3), 0.1, 4, 2)
    assert np.isnan(found[99:107]).all() and np.isfinite(found[107:]).all()


@pytest.mark.parametrize(
    ("heads", "dim", "count", "rate"), [(1, 16, 1, 4), (3, 20, 7, 1), (9, 40, 64, 6), (64, 128, 50, 24)]
)
def test_chosen_entries_are_the_references(ops: CpuOps, heads: int, dim: int, count: int, rate: int) -> None:
    """Also where scores are equal; a row of a chunk chooses as it does alone."""
    layer, table = filled(KVKind.F32, dim, rate, whole=True)
    q, weights = whole_numbers(ROWS, heads, dim, seed=8), whole_numbers(ROWS, heads, seed=9)
    batch = batch_of(CONTEXTS, COUNTS, table)
    found, expected = (np.full((ROWS, count), 7, np.float32) for _ in range(2))
    ops.entry_select(found, q, weights, layer, batch, rate)
    entry_select.reference(expected, q, weights, layer, batch, rate)
    assert np.array_equal(found, expected)
    for s, row in ((1, 1), (2, 40), (3, 75)):
        part, out = slice(row, row + 1), np.empty((1, count), np.float32)
        ops.entry_select(out, q[part], weights[part], layer, alone(batch, s, row), rate)
        assert np.array_equal(out[0], found[row])


@pytest.mark.parametrize(
    ("dim", "series", "rate"), thinned(list(itertools.product((2, 40, 300), (1, 2), (2, 4, 9))), "compress")
)
def test_compress(ops: CpuOps, dim: int, series: int, rate: int) -> None:
    """Each sequence begins at position 0, or where the steps before it have come to."""
    x, bias = random_rows(43, 2 * series * dim) * np.float32(3), np.array(random_rows(1, rate * series * dim))[0]
    done: dict[int, int] = {}

    def placed(slots: I32Array, batch: AttentionBatch) -> AttentionBatch:
        """Where the sequence that is cut has come to; the others are whole."""
        counts = np.diff(batch.row_starts)
        begun = done.get(int(slots[0]), 0) if len(slots) == 1 else 0
        done[int(slots[0])] = (begun + int(counts[0])) % 37
        return AttentionBatch(batch.row_starts, (counts + begun).astype(np.int32), batch.page_table)

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        ops.compress(out, x[rows], bias, state, slots, placed(slots, batch), rate)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        compress.reference(out, x[rows], bias, state, slots, placed(slots, batch), rate)

    check(native, law, dim, 3 * series * dim, 3e-6)


def test_what_does_not_fit_is_refused(ops: CpuOps) -> None:
    layer, table = filled(KVKind.F32, 20, 4)
    batch, q, out = batch_of((40,), (1,), table[1:2]), normal(1, 2, 20), np.empty((1, 2, 20), np.float32)
    gone = AttentionBatch(batch.row_starts, batch.context_tokens, np.full_like(batch.page_table, -1))
    wide, sinks = np.empty((1, 2, 21), np.float32), normal(2)
    for call in (
        (wide, q, None, None, layer, batch, sinks, 0.1, 4, 0),
        (out, q, None, wide, layer, batch, sinks, 0.1, 4, 0),
        (out, q, None, None, layer, gone, sinks, 0.1, 4, 0),
        (out, q, None, None, layer, batch, sinks, 0.1, 1, 0),
        (out, q, None, None, layer, batch, sinks, 0.1, 4, -1),
    ):
        with pytest.raises(BackendError):
            ops.entry_attention(*call)
    with pytest.raises(BackendError):
        ops.entry_select(np.empty((1, 3), np.float32), q, normal(1, 3), layer, batch, 4)
    for slot in (-1, layer.num_pages * PAGE_TOKENS):
        with pytest.raises(BackendError):
            ops.entry_write(layer, normal(1, 20), np.array([slot], np.int32), np.array([3], np.int32), 4)
    for dim, rate in ((21, 4), (20, 0), (4096, 1)):
        with pytest.raises(ValueError, match="entries"):
            entry_cache(dim, rate)


@pytest.mark.parametrize(("made", "read"), [(1, 4), (4, 1), (3, 5)])
def test_weigh_streams(ops: CpuOps, made: int, read: int) -> None:
    for width in (1, 15, 33):
        x, weights = normal(7, read, width), random_rows(7, made * read)
        out, expected, one = (np.empty((rows, made, width), np.float32) for rows in (7, 7, 1))
        ops.weigh_streams(out, x, weights)
        weigh_streams.reference(expected, x, weights)
        np.testing.assert_allclose(out, expected, rtol=3e-6, atol=3e-6)
        ops.weigh_streams(one, x[3:4], weights[3:4])
        assert np.array_equal(one[0], out[3])
        with pytest.raises(BackendError):
            ops.weigh_streams(out, x, random_rows(7, made * read + 1))


@pytest.mark.parametrize(("streams", "rounds"), [(2, 1), (4, 20), (5, 3), (8, 2)])
def test_stream_shares(ops: CpuOps, streams: int, rounds: int) -> None:
    """Rows and columns of the last part add up to one, nearly, after many rounds."""
    whole = (2 + streams) * streams
    x, base, factor = random_rows(7, whole) * np.float32(3), normal(whole), normal(3, seed=1)
    for width, factors in ((whole, factor), (streams, factor[:1])):
        out, expected, one = (np.empty((rows, width), np.float32) for rows in (7, 7, 1))
        ops.stream_shares(out, x[:, :width], base[:width], factors, streams, rounds, 1e-6)
        stream_shares.reference(expected, x[:, :width], base[:width], factors, streams, rounds, 1e-6)
        np.testing.assert_allclose(out, expected, rtol=0, atol=3e-6)
        ops.stream_shares(one, x[3:4, :width], base[:width], factors, streams, rounds, 1e-6)
        assert np.array_equal(one[0], out[3])
        with pytest.raises(BackendError):
            ops.stream_shares(out, x[:, :width], base[:width], normal(2), streams, rounds, 1e-6)
    if rounds == 20:
        ops.stream_shares(square := np.empty((7, whole), np.float32), x, base, factor, streams, rounds, 1e-6)
        sums = square[:, 2 * streams :].reshape(7, streams, streams).sum(axis=1)
        np.testing.assert_allclose(sums, 1, atol=0.02)


@pytest.mark.parametrize("scores", Scores)
def test_route_by_token(ops: CpuOps, scores: Scores) -> None:
    logits, ids = random_rows(9, 13) * np.float32(4), np.array([0, 4, 4, 2, 1, 3, 0, 1, 2], np.int32)
    table = np.concatenate([np.random.default_rng(row).permutation(13)[:3] for row in range(5)]).astype(np.float32)
    out, expected = (np.empty((9, 6), np.float32) for _ in range(2))
    ops.route_by_token(out, logits, ids, table, int(scores), 1e-20, 1.5)
    route_by_token.reference(expected, logits, ids, table, int(scores), 1e-20, 1.5)
    np.testing.assert_allclose(out, expected, rtol=3e-6, atol=3e-6)
    assert np.array_equal(out[:, 3:], table.reshape(5, 3)[ids])
    ops.route_by_token(out, logits, ids * 0, np.array([12, 12, -3], np.float32), int(scores), 1e-20, 1.5)
    route_by_token.reference(expected, logits, ids * 0, np.array([12, 12, -3], np.float32), int(scores), 1e-20, 1.5)
    assert np.array_equal(out[:, 3:], expected[:, 3:]) and out[0, 3:].tolist() == [12, 0, 1]
    for wrong in (-1, 5):
        with pytest.raises(BackendError):
            ops.route_by_token(out, logits, np.full(9, wrong, np.int32), table, int(scores), 1e-20, 1.5)
    with pytest.raises(BackendError):
        ops.route_by_token(out, logits, ids, table[:-1], int(scores), 1e-20, 1.5)


@pytest.mark.parametrize("rate", [1, 4, 6, 24])
def test_each_page_of_what_a_row_sees_is_checked(ops: CpuOps, rate: int) -> None:
    """A page that is gone is refused where an entry of it is seen, and no other page is asked for."""
    layer, table = filled(KVKind.F32, 20, rate)
    q, out = normal(1, 2, 20), np.empty((1, 2, 20), np.float32)
    for place in range(-(-150 // PAGE_TOKENS)):
        broken = table[2:3].copy()
        broken[0, place] = -1
        positions = range(place * PAGE_TOKENS, min(150, (place + 1) * PAGE_TOKENS))
        operands = (out, q, None, None, layer, batch_of((150,), (1,), broken), None, 0.1, rate, 0)
        if any((position + 1) % rate == 0 for position in positions):
            with pytest.raises(BackendError, match="an index"):
                ops.entry_attention(*operands)
        else:
            ops.entry_attention(*operands)
