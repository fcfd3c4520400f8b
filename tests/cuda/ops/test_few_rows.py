"""Products of whole-number weights with few rows in the emulator, bit for bit as on the CPU. Groups have every size,
rows are longer than a block can keep, and gates are inside the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.ops.same_bits import same_bits
from tests.ops.native import format_id, random_rows, random_weight
from tests.ops.products.test_stored_native import packed
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.types.spec.formats import WeightFormat, WeightKind

FORMATS = [WeightFormat(WeightKind.INT8, 128), WeightFormat(WeightKind.INT4, 64), WeightFormat(WeightKind.INT4, 192)]
FORMATS += [WeightFormat(WeightKind.INT8, 256, 64), WeightFormat(WeightKind.INT4, 512, 64)]
FORMATS += [WeightFormat(WeightKind.SUPER6, 256, 64)]
STREAMED = [WeightFormat(kind, 256, rotated) for kind in (WeightKind.INT8, WeightKind.INT4) for rotated in (0, 64)]
"""The formats that linear_row and linear_rows multiply."""


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
@pytest.mark.parametrize(("rows", "columns", "count"), [(128, 700, 1), (128, 1300, 2), (70, 700, 16), (96, 700, 41)])
def test_products(
    cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, rows: int, columns: int, count: int
) -> None:
    weight, x = random_weight(rows, columns, weight_format, True), np.ascontiguousarray(random_rows(count, columns))
    same_bits(cpu, gpu, "linear_add", (np.array(random_rows(count, rows)), x, weight), tolerance=None)
    same_bits(cpu, gpu, "linear_silu", (np.zeros((count, rows // 2), np.float32), x, weight), tolerance=None)


@pytest.mark.parametrize("weight_format", STREAMED, ids=format_id)
@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [(1280, 256, 1), (1216, 130, 1), (640, 320, 3), (256, 4300, 8), (200, 9000, 1), (64, 60, 5)],
)
def test_streamed_weights(
    cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, rows: int, columns: int, count: int
) -> None:
    """A block has more strips than warps, groups are fewer than warps or more than a span. The last one is short."""
    test_products(cpu, gpu, weight_format, rows, columns, count)


@pytest.mark.parametrize("weight_format", FORMATS[1:], ids=format_id)
@pytest.mark.parametrize("columns", [17000, 30000])
def test_a_long_row(cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, columns: int) -> None:
    """The rows have more groups than are folded at once, and more columns than a block can keep."""
    weight, x = random_weight(20, columns, weight_format, False), np.ascontiguousarray(random_rows(1, columns))
    same_bits(cpu, gpu, "linear", (np.zeros((1, 20), np.float32), x, weight), tolerance=None)


@pytest.mark.parametrize(
    "kind", [WeightKind.SUPER4_MIN, WeightKind.SUPER6, WeightKind.E2M1_32], ids=lambda kind: kind.name
)
def test_stored_weights(cpu: CpuOps, gpu: CudaDevice, kind: WeightKind) -> None:
    """The rows have more groups than a round."""
    weight, x = packed(kind, 64, 2560), np.ascontiguousarray(random_rows(1, 2560))
    same_bits(cpu, gpu, "linear_add", (np.array(random_rows(1, 64)), x, weight), tolerance=None)
    same_bits(cpu, gpu, "linear_silu", (np.zeros((1, 32), np.float32), x, weight), tolerance=None)
