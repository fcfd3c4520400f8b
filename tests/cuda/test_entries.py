"""Ops over pages of entries in the emulator, and those that make entries: bit for bit as on the CPU."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.cuda.fake import controls
from tests.cuda.operands import run_on
from tests.cuda.same_bits import same_bits
from tests.cuda.test_states import COUNTS as SPANS
from tests.cuda.test_states import ROWS, SLOTS, numbers
from tests.ops.test_entries_native import empty_layer, filled
from tests.ops.test_latent_native import batch_of, normal, slots_of
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import AttentionBatch
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

CONTEXTS, COUNTS = (1, 40, 150, 600), (1, 1, 7, 2)
"""Positions of the sequences that `filled` makes, and their rows in the step."""
STEP_ROWS = sum(COUNTS)

WRITES = list(itertools.product(KVKind, (2, 40, 512), (1, 4, 6, 128)))
SEEN = list(itertools.product(KVKind, (2, 40, 300), (1, 3), ((1, 24), (1, 700), (4, 0), (24, 0))))
SELECTS = list(itertools.product(KVKind, ((1, 16, 1, 4), (3, 20, 7, 1), (9, 40, 64, 6))))


@pytest.mark.parametrize(("kind", "dim", "rate"), thinned(WRITES, "entry_write on a device"))
def test_entry_write(cpu: CpuOps, gpu: CudaDevice, kind: KVKind, dim: int, rate: int) -> None:
    rows, positions = normal(130, dim), np.arange(3, 133, dtype=np.int32)
    rows[5] = 0
    rows[9] *= 1e-42
    rows[13, 1], rows[17, 0], rows[21, 1] = np.nan, -np.inf, -1e30
    slots = slots_of(np.random.default_rng(3).permutation(20), 133)[3:]
    same_bits(cpu, gpu, "entry_write", (empty_layer(kind, 20, dim, rate), rows, slots, positions, rate), tolerance=None)


@pytest.mark.parametrize(("kind", "dim", "heads", "sees"), thinned(SEEN, "entry_attention on a device"))
def test_entry_attention(
    cpu: CpuOps, gpu: CudaDevice, kind: KVKind, dim: int, heads: int, sees: tuple[int, int]
) -> None:
    """Rows see windows or all entries; a softmax begins here, or goes on from another call with choices and sinks."""
    layer, table = filled(kind, dim, sees[0])
    batch, q = batch_of(CONTEXTS, COUNTS, table), normal(STEP_ROWS, heads, dim, seed=2)
    before, sinks = normal(STEP_ROWS, heads, dim + 2, seed=4), normal(heads, seed=5)
    before[:, :, dim + 1] = 1 + np.abs(before[:, :, dim + 1])
    chosen = np.full((STEP_ROWS, 70), -1, np.float32)
    for row in range(STEP_ROWS):
        count = 1 + 31 * row % 70
        chosen[row, :count] = np.sort(np.random.default_rng(row).permutation(90)[:count])
    for picked, first, last, width in (
        (None, None, None, dim + 2),
        (chosen, before, sinks, dim),
        (None, None, sinks, dim),
        (chosen, None, None, dim + 2),
    ):
        out = np.zeros((STEP_ROWS, heads, width), np.float32)
        operands = (out, q, picked, first, layer, batch, last, 0.1, *sees)
        same_bits(cpu, gpu, "entry_attention", operands, tolerance=3e-4 if width == dim else None)


def test_entries_of_the_largest_size(cpu: CpuOps, gpu: CudaDevice) -> None:
    layer, table = filled(KVKind.INT8, 2048, 24)
    batch, q = batch_of(CONTEXTS, COUNTS, table), normal(STEP_ROWS, 1, 2048)
    operands = (np.zeros_like(q), q, None, None, layer, batch, normal(1, seed=5), 0.02, 24, 0)
    same_bits(cpu, gpu, "entry_attention", operands, tolerance=3e-4)


@pytest.mark.parametrize(("kind", "sizes"), SELECTS)
def test_entry_select(cpu: CpuOps, gpu: CudaDevice, kind: KVKind, sizes: tuple[int, int, int, int]) -> None:
    heads, dim, count, rate = sizes
    layer, table = filled(kind, dim, rate)
    q, weights = normal(STEP_ROWS, heads, dim, seed=8), normal(STEP_ROWS, heads, seed=9)
    weights[5], q[10, 0, 0] = 0.0, np.nan  # equal scores: the first entries are taken; scores that are no numbers
    operands = (np.full((STEP_ROWS, count), 7, np.float32), q, weights, layer, batch_of(CONTEXTS, COUNTS, table), rate)
    (found,) = same_bits(cpu, gpu, "entry_select", operands, tolerance=None)
    seen = min(count, (150 - 7 + 3 + 1) // rate)
    assert found[5].tolist() == [*range(seen), *[-1.0] * (count - seen)]


def test_what_does_not_fit_is_refused(gpu: CudaDevice) -> None:
    """As on the CPU, before anything runs."""
    layer, table = filled(KVKind.F32, 20, 4)
    batch, q, out = batch_of((40,), (1,), table[1:2]), normal(1, 2, 20), np.empty((1, 2, 20), np.float32)
    gone = AttentionBatch(batch.row_starts, batch.context_tokens, np.full_like(batch.page_table, -1))
    wide, sinks, launches = np.empty((1, 2, 21), np.float32), normal(2), controls().fake_launches()
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("entry_attention", (wide, q, None, None, layer, batch, sinks, 0.1, 4, 0)),
        ("entry_attention", (out, q, None, wide, layer, batch, sinks, 0.1, 4, 0)),
        ("entry_attention", (out, q, None, None, layer, gone, sinks, 0.1, 4, 0)),
        ("entry_attention", (out, q, None, None, layer, batch, sinks, 0.1, 4, -1)),
        ("entry_select", (np.empty((1, 3), np.float32), q, normal(1, 2), layer, gone, 4)),
        ("entry_write", (layer, normal(1, 20), np.array([-1], np.int32), np.array([3], np.int32), 4)),
        ("route_by_token", (normal(1, 4), normal(1, 9), np.array([5], np.int32), normal(10), 0, 0.0, 1.0)),
    ]
    for name, operands in calls:
        with pytest.raises(BackendError, match=f"{name} was refused by the cuda backend"):
            run_on(gpu, name, *operands)
    assert controls().fake_launches() == launches


COMPRESSED = list(itertools.product((2, 40, 300), (1, 2), (2, 4, 9), (0, 3)))


@pytest.mark.parametrize(("dim", "series", "rate", "begun"), thinned(COMPRESSED, "compress on a device"))
def test_compress(cpu: CpuOps, gpu: CudaDevice, dim: int, series: int, rate: int, begun: int) -> None:
    """Some sequences begin; of others `begun` positions or more were computed before."""
    x, bias = 3 * numbers(ROWS, 2 * series * dim), numbers(rate * series * dim, seed=1)
    state = numbers(5, 3 * series * dim, seed=2)
    state.reshape(5, series, 3, dim)[:, :, 1] = 1 + np.abs(state.reshape(5, series, 3, dim)[:, :, 1])
    contexts = np.array(SPANS, np.int32) + begun * np.arange(len(SPANS), dtype=np.int32)
    starts = np.cumsum([0, *SPANS]).astype(np.int32)
    batch = AttentionBatch(starts, contexts, np.zeros((len(SPANS), 1), np.int32))
    operands = (np.full((ROWS, dim), 7, np.float32), x, bias, state, SLOTS, batch, rate)
    _, after = same_bits(cpu, gpu, "compress", operands, (0, 3), 3e-5)
    assert np.array_equal(after[1:3], state[1:3])  # the slot that no sequence has, and that of one without rows
