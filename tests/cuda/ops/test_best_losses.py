"""best_losses in the emulator, bit for bit as on the CPU. The cases are all formats, more rows than are computed
together, the part of one rank, and rows whose largest logits lie where few threads look at them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.ops.same_bits import same_bits
from tests.ops.native import format_id, random_rows, random_weight
from tests.ops.products.test_best_losses_native import COUNT, FORMATS, weight_of
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.quant.formats import INT8
from twostroke.types.spec.formats import F32, WeightFormat

THREADS, ROOM = 256, 2048
"""The threads of a block, and the keys that a block holds: kThreads and kRoom of csrc/cuda."""


@pytest.mark.parametrize("weight_format", [*FORMATS, F32], ids=format_id)
def test_it_has_the_bits_of_the_cpu(cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat) -> None:
    weight, out = weight_of(200, 512, weight_format), np.empty((35, 2 * COUNT), np.float32)
    x, logits = np.ascontiguousarray(random_rows(35, 512)), random_rows(35, 300).copy()
    logits[1, ::5], logits[2], logits[3, 100:] = np.nan, 0.5, -np.inf
    for first in (0, 100):
        same_bits(cpu, gpu, "best_losses", (out, logits, x, weight, first), tolerance=None)


def test_more_keys_than_a_block_holds(cpu: CpuOps, gpu: CudaDevice) -> None:
    """The largest logits belong to fewer threads than are wanted, so that the first bound is far too low."""
    turns, few = ROOM // (COUNT - 5) + 2, COUNT - 5
    logits = random_rows(2, turns * THREADS).copy()
    logits.reshape(2, turns, THREADS)[:, :, :few] += 100
    weight, out = random_weight(logits.shape[1], 64, INT8, False), np.empty((2, 2 * COUNT), np.float32)
    found = same_bits(
        cpu, gpu, "best_losses", (out, logits, np.ascontiguousarray(random_rows(2, 64)), weight, 0), tolerance=None
    )
    assert (found[0][:, COUNT:] % THREADS < few).all()
    assert turns * few > ROOM
