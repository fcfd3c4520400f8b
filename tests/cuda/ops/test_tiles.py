"""Products with many rows, in tiles on the matrix units, in the emulator: bit for bit as on the CPU."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.cuda.ops.same_bits import same_bits
from tests.ops.banks import joined
from tests.ops.native import random_rows, random_weight
from tests.ops.products.test_stored_native import KINDS, packed, shapes
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.types.spec.formats import WeightFormat, WeightKind

FORMATS = [WeightFormat(kind, group) for kind in (WeightKind.INT8, WeightKind.INT4) for group in (64, 192, 256, 1024)]
FORMATS += [WeightFormat(kind, group, 64) for kind in (WeightKind.INT8, WeightKind.INT4) for group in (64, 256, 1024)]
FORMATS += [WeightFormat(WeightKind.SUPER6, 256, 64)]
"""Sums of groups of more than 256 columns are converted in another way."""
SHAPES = [(1, 1, 17), (65, 200, 64), (130, 1100, 20), (200, 70, 65), (70, 300, 129)]
"""Rows, columns and rows of activations: less than a tile, whole tiles, and one more; odd numbers of panels and
steps."""


@pytest.mark.parametrize(("shape", "weight_format"), thinned(list(product(SHAPES, FORMATS)), "tiles of products", 8))
def test_tiles(cpu: CpuOps, gpu: CudaDevice, shape: tuple[int, int, int], weight_format: WeightFormat) -> None:
    rows, columns, count = shape
    weight, x = random_weight(rows, columns, weight_format, rows % 2 == 0), np.array(random_rows(count, columns))
    x[1], x[2], x[3, -1], x[4] = 1e-39, 127.0, 3e38, 0.0
    same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=None)
    out = np.ascontiguousarray(random_rows(count, rows))
    same_bits(cpu, gpu, "linear_add", (out, np.ascontiguousarray(random_rows(count, columns)), weight), tolerance=2e-4)


@pytest.mark.parametrize(("kind", "columns"), thinned(list(shapes()), "tiles of stored weights", 8))
def test_tiles_of_stored_weights(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind, columns: int) -> None:
    for rows, count in ((130, 17), (63, 70)):
        weight, x = packed(kind, rows, columns), np.array(random_rows(count, columns))
        x[1], x[2], x[3, -1], x[4] = 1e-39, 127.0, 3e38, 0.0
        same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=None)


@pytest.mark.parametrize("kind", thinned(KINDS, "tiles of stored banks", 4), ids=lambda kind: kind.name)
def test_tiles_of_stored_banks(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind) -> None:
    """One expert has no rows, one has more rows than a tile, and one has a few."""
    gate_up, down = joined([packed(kind, 512, 256)] * 4), joined([packed(kind, 256, 256)] * 4)
    x, routes = np.ascontiguousarray(random_rows(66, 256)), np.zeros((66, 2), np.float32)
    routes[:, 0], routes[65, 1] = 0.7, 2.0
    room = (np.zeros((66, 256), np.float32), np.zeros((66, 256), np.float32), np.zeros((66, 2), np.float32))
    same_bits(cpu, gpu, "experts", (np.zeros((66, 256), np.float32), x, routes, gate_up, down, *room), tolerance=None)
