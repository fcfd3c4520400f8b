"""Weights that keep a file's codes, orders of columns and adapters in the emulator: bit for bit as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.same_bits import same_bits
from tests.ops.banks import joined
from tests.ops.native import format_id, random_rows
from tests.ops.test_experts_native import routes_of
from tests.ops.test_low_rank_native import ADAPTERS, FIRST, ROWS, ranked_bank
from tests.ops.test_stored_native import KINDS, packed, shapes
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.types.spec.formats import BF16, COLUMNS8, F32, WeightFormat, WeightKind


@pytest.mark.parametrize(("kind", "columns"), thinned(list(shapes()), "stored weights on a device"))
@pytest.mark.parametrize(("rows", "count"), [(1, 3), (130, 1), (63, 6)])
def test_products(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind, columns: int, rows: int, count: int) -> None:
    weight, x = packed(kind, rows, columns), np.ascontiguousarray(random_rows(count, columns))
    same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=None)
    out = np.ascontiguousarray(random_rows(count, rows))
    same_bits(cpu, gpu, "linear_add", (out, x, weight), tolerance=2e-4)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind) -> None:
    weight, x = packed(kind, 66, 768), np.ascontiguousarray(random_rows(3, 768))
    ids = np.array([0, 65, 63, 64], np.int32)
    same_bits(cpu, gpu, "embed", (np.zeros((4, 768), np.float32), weight, ids), tolerance=1e-6)
    same_bits(cpu, gpu, "linear_silu", (np.zeros((3, 33), np.float32), x, weight), tolerance=1e-3)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_banks(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind) -> None:
    gate_up, down = joined([packed(kind, 512, 256)] * 5), joined([packed(kind, 256, 256)] * 5)
    x, routes = np.ascontiguousarray(random_rows(3, 256)), routes_of(3, 5, 2)
    room = (np.zeros((3, 256), np.float32), np.zeros((3, 256), np.float32), np.zeros((3, 2), np.float32))
    same_bits(cpu, gpu, "experts", (np.zeros((3, 256), np.float32), x, routes, gate_up, down, *room), tolerance=None)


@pytest.mark.parametrize("width", [1, 64, 300])
def test_take_columns(cpu: CpuOps, gpu: CudaDevice, width: int) -> None:
    order = np.random.default_rng(width).permutation(width).astype(np.float32)
    same_bits(cpu, gpu, "take_columns", (np.zeros((5, width), np.float32), random_rows(5, width), order))


@pytest.mark.parametrize("weight_format", [F32, BF16, COLUMNS8], ids=format_id)
@pytest.mark.parametrize(
    ("ranks", "columns", "rows"), [((1, 8, 3, 0), 1, 1), ((8, 5, 16, 0), 64, 96), ((7, 24, 9, 0), 300, 577)]
)
def test_low_rank(
    cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, ranks: tuple[int, ...], columns: int, rows: int
) -> None:
    room, width = -(-max(ranks) // 8) * 8, rows + FIRST + 2
    banks = [ranked_bank(size, room, ranks, weight_format) for size in (columns, rows)]
    x, product = random_rows(ROWS, columns), random_rows(ROWS, width)
    middle = np.zeros((ROWS, room), np.float32)
    operands = (np.zeros((ROWS, width), np.float32), product, x, *banks, np.array(ranks, np.float32), ADAPTERS)
    same_bits(cpu, gpu, "low_rank", (*operands, middle, FIRST), tolerance=1e-4)
