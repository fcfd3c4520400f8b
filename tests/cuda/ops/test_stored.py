"""Weights that keep a file's codes in the emulator: bit for bit as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.ops.same_bits import same_bits
from tests.ops.banks import joined
from tests.ops.native import random_rows
from tests.ops.products.test_experts_native import routes_of
from tests.ops.products.test_stored_native import KINDS, packed, shapes
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.stored_layout import holds_columns
from twostroke.types.spec.formats import STORED_GROUP, WeightKind

COMMON = [WeightKind.FLAT4, WeightKind.FLAT8, WeightKind.SUPER4_MIN, WeightKind.SUPER6]
"""The kinds with kernels of their own."""


@pytest.mark.parametrize(("kind", "columns"), thinned(list(shapes()), "stored weights on a device"))
@pytest.mark.parametrize(("rows", "count"), [(1, 3), (130, 1), (63, 6)])
def test_products(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind, columns: int, rows: int, count: int) -> None:
    weight, x = packed(kind, rows, columns), np.ascontiguousarray(random_rows(count, columns))
    same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=None)
    out = np.ascontiguousarray(random_rows(count, rows))
    same_bits(cpu, gpu, "linear_add", (out, x, weight), tolerance=2e-4)


@pytest.mark.parametrize("kind", COMMON, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("rows", "count", "columns"), [(130, 33, 64), (256, 70, 832), (192, 40, 256), (140, 150, 1536)]
)
def test_many_rows(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind, rows: int, count: int, columns: int) -> None:
    """The last group may be short, and rows of `out` may begin at any multiple of four bytes."""
    columns += 0 if holds_columns(kind, columns) else -columns % STORED_GROUP
    weight, x = packed(kind, rows, columns), np.ascontiguousarray(random_rows(count, columns))
    same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=None)
    out = np.ascontiguousarray(random_rows(count, rows))
    same_bits(cpu, gpu, "linear_add", (out, x, weight), tolerance=None)
    same_bits(cpu, gpu, "linear_silu", (np.zeros((count, rows // 2), np.float32), x, weight), tolerance=None)


@pytest.mark.parametrize("columns", [256, 4352, 17152], ids=str)
@pytest.mark.parametrize("kind", [*COMMON, WeightKind.SUPER5_MIN], ids=lambda kind: kind.name)
def test_one_long_row(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind, columns: int) -> None:
    """More groups than a block has at once are added in rounds."""
    weight, x = packed(kind, 192, columns), np.ascontiguousarray(random_rows(1, columns))
    same_bits(cpu, gpu, "linear", (np.zeros((1, 192), np.float32), x, weight), tolerance=None)
    same_bits(cpu, gpu, "linear_silu", (np.zeros((1, 96), np.float32), x, weight), tolerance=None)


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


