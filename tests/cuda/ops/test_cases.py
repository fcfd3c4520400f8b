"""Every op runs in the emulator on its own cases, bit for bit as at the CPU's level with fused multiply-add.

That level is near the reference (tests/ops/test_cases_native.py). The orders of threads and blocks are drawn from a
seed. Accesses to shared memory that no barrier orders are errors.
"""

from __future__ import annotations

import pytest
from tools.gpu.op_cases import cases_of

from tests.cuda.ops.same_bits import same_bits
from tests.tiers import TIER, fewer
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.registry import registry


@pytest.mark.parametrize("name", [name for name, op in registry().items() if op.CASES and op.ON_DEVICES])
def test_it_has_the_bits_of_the_cpu(cpu: CpuOps, gpu: CudaDevice, name: str) -> None:
    op = registry()[name]
    for case in cases_of(op, max(1, fewer(6, 3) // len(op.CASES)), f"{TIER.seed}"):
        same_bits(cpu, gpu, name, case.operands, case.changed, tolerance=None)
