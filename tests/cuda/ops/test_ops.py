"""Kernels in the emulator beyond the cases of each op: long columns, extreme rows, and pages that sequences share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tools.gpu.cases import numbers

from tests.cuda.ops.same_bits import same_bits
from tests.ops.native import format_id, random_rows, random_weight
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.cases import CODES
from twostroke.ops.operands import AttentionBatch, new_kv_layer
from twostroke.types.spec.formats import BF16, F32, KVKind, WeightFormat

PRODUCTS_OF_FLOATS = [
    *((70, 1201, 1), (33, 1164, 2), (40, 700, 7), (130, 600, 37), (6337, 136, 33)),
    pytest.param(12801, 100, 65, marks=pytest.mark.slow),
]
"""The rows of the matrix, the columns, and the rows of x: one case for each shape of block."""


@pytest.mark.parametrize("weight_format", [F32, BF16], ids=format_id)
@pytest.mark.parametrize(("rows", "columns", "count"), PRODUCTS_OF_FLOATS)
def test_products_of_floats(
    cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, rows: int, columns: int, count: int
) -> None:
    """The columns do not fit into shared memory at once."""
    weight, x = random_weight(rows, columns, weight_format, True), np.ascontiguousarray(random_rows(count, columns))
    same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=1e-4)


def test_products_of_extreme_rows(cpu: CpuOps, gpu: CudaDevice) -> None:
    x = np.zeros((6, 128), np.float32)
    x[1] = 1e-38
    x[2, 5] = 3e38
    x[3] = -1.0
    x[4] = np.linspace(-127, 127, 128, dtype=np.float32) + np.float32(0.5)
    x[5, 64:] = 1.0
    for weight_format in CODES:
        weight = random_weight(64, 128, weight_format, False)
        same_bits(cpu, gpu, "linear", (np.zeros((6, 64), np.float32), x, weight), tolerance=None)


def pages(kind: KVKind, heads: int, dim: int, tokens: int, cpu: CpuOps) -> tuple[Any, np.ndarray]:
    """A layer in which one sequence has `tokens` positions, and its page table."""
    count = -(-tokens // 16)
    table = np.random.default_rng(count).permutation(count + 2)[:count].astype(np.int32)
    layer, positions = new_kv_layer(kind, count + 2, heads, dim), np.arange(tokens)
    slots = (table[positions // 16] * 16 + positions % 16).astype(np.int32)
    cpu.kv_write(layer, numbers(tokens, heads, dim, seed=1), numbers(tokens, heads, dim, seed=2), slots)
    return layer, table


@pytest.mark.parametrize("kind", list(KVKind))
@pytest.mark.parametrize(("heads", "rows"), [(2, (1, 3)), (9, (2,)), (10, (1, 1, 1)), (17, (1, 65))])
def test_heads_and_sequences_that_share_pages(
    cpu: CpuOps, gpu: CudaDevice, kind: KVKind, heads: int, rows: tuple[int, ...]
) -> None:
    """heads: the query heads for one head of K and V. Each sequence sees the first positions of the same pages."""
    tokens = 540
    layer, table = pages(kind, 1, 24, tokens, cpu)
    starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    contexts = np.array([tokens - 460 * (index % 2) for index in range(len(rows))], np.int32)
    batch = AttentionBatch(starts, contexts, np.tile(table, (len(rows), 1)))
    q, out = numbers(sum(rows), heads, 24, seed=7), np.zeros((sum(rows), heads, 24), np.float32)
    operands = (out, q, layer, batch, 0.2, 0, 0.0, None, None, 0)
    same_bits(cpu, gpu, "attention", operands, tolerance=0.05)
