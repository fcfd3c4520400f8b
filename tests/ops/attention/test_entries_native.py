"""Entries at every level: NaN, and pages that were given back. Experts that a table names twice, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.attention.test_latent_native import queries, whole_numbers
from tests.ops.native import batch_of, normal, random_rows, slots_of
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import entry_write
from twostroke.ops.attention.entries import entry_cache
from twostroke.ops.operands import AttentionBatch, KVLayer, new_kv_layer
from twostroke.ops.products.route import Scores
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

CONTEXTS, COUNTS = (1, 40, 150, 600), (1, 1, 70, 9)
ROWS = sum(COUNTS)


def empty_layer(kind: KVKind, pages: int, dim: int, rate: int) -> KVLayer:
    """A layer in which every number, or its scale, is NaN."""
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
        entry_write.reference(layer, rows, slots_of(table[s], np.arange(context)), positions, rate)
    return layer, table


def test_an_entry_that_is_not_a_number_is_seen_by_those_who_see_it(ops: CpuOps) -> None:
    layer, table = filled(KVKind.F32, 20, 4)
    ops.entry_write(
        layer, np.full((1, 20), np.nan, np.float32), slots_of(table[2], np.array([99])), np.array([99], np.int32), 4
    )
    q, batch = queries(150, 3, 20, 7), batch_of((150,), (150,), table[2:3])
    found = np.empty((150, 3, 20), np.float32)
    ops.entry_attention(found, q, None, None, layer, batch, normal(3), 0.1, 4, 0)
    assert np.isfinite(found[:99]).all() and np.isnan(found[99:]).all()
    ops.entry_attention(found, q, None, None, layer, batch, normal(3), 0.1, 4, 2)
    assert np.isnan(found[99:107]).all() and np.isfinite(found[107:]).all()


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


def test_a_number_that_stands_twice_means_the_next_expert(ops: CpuOps) -> None:
    logits, ids, out = random_rows(9, 13), np.array([0, 4, 4, 2, 1, 3, 0, 1, 2], np.int32), np.empty((9, 6), np.float32)
    rule = (int(Scores.SOFTMAX), 1e-20, 1.5)
    ops.route_by_token(out, logits, ids * 0, np.array([12, 12, -3], np.float32), *rule)
    assert (out[:, 3:] == [12, 0, 1]).all()
    table = np.zeros(15, np.float32)
    for wrong in (-1, 5):
        with pytest.raises(BackendError):
            ops.route_by_token(out, logits, np.full(9, wrong, np.int32), table, *rule)
    with pytest.raises(BackendError):
        ops.route_by_token(out, logits, ids, table[:-1], *rule)


@pytest.mark.parametrize("rate", [1, 4, 6, 24])
def test_each_page_of_what_a_row_sees_is_checked(ops: CpuOps, rate: int) -> None:
    """A page that was given back is refused where a row sees an entry of it. No other page is needed."""
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
