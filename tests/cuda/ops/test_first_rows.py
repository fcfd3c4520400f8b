"""Products of rows at the first positions of a text in the emulator, bit for bit as on the CPU. A step has a few
of them among many rows, more than are computed together, or no other rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.ops.same_bits import same_bits
from tests.ops.native import format_id, random_rows
from tests.ops.products.test_first_rows_native import FORMATS, STORED, positions_of, weight_of
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.quant.formats import INT8
from twostroke.types.spec.formats import F32, WeightFormat


@pytest.mark.parametrize("weight_format", [*FORMATS, F32], ids=format_id)
@pytest.mark.parametrize("name", ["linear", "linear_add", "linear_silu"])
def test_a_few_among_many(cpu: CpuOps, gpu: CudaDevice, name: str, weight_format: WeightFormat) -> None:
    rows, columns = 130, 512
    weight, width = weight_of(rows, columns, weight_format), rows // 2 if name == "linear_silu" else rows
    for count in (1, 5, 40):
        x, out = np.ascontiguousarray(random_rows(count, columns)), np.array(random_rows(count, width))
        same_bits(cpu, gpu, name, (out, x, weight, positions_of(count, 3)), tolerance=None)


@pytest.mark.parametrize("weight_format", [INT8, STORED[0]], ids=format_id)
def test_more_than_are_computed_together(cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat) -> None:
    x, out = np.ascontiguousarray(random_rows(150, 256)), random_rows(150, 65)
    weight = weight_of(65, 256, weight_format)
    for positions in (np.zeros(150, np.int32), np.arange(150, dtype=np.int32) % 5):
        same_bits(cpu, gpu, "linear_add", (np.array(out), x, weight, positions), tolerance=None)


def test_a_whole_block(cpu: CpuOps, gpu: CudaDevice) -> None:
    gate_up, down, middle = weight_of(256, 256, INT8), weight_of(64, 128, INT8), np.zeros((20, 128), np.float32)
    x, out = np.ascontiguousarray(random_rows(20, 256)), np.array(random_rows(20, 64))
    same_bits(cpu, gpu, "feed_forward", (out, x, gate_up, down, middle, positions_of(20, 0)), tolerance=None)
