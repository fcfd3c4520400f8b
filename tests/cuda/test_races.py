"""No kernel has a race in global memory: every op of tools/gpu, and sampling, run in the build that checks each
access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tools.gpu.cases import op_cases
from tools.gpu.compare import on_device
from tools.gpu.op_cases import OpCase

from tests.cuda.emulator.fake import built_folder, controls, device, wrong
from tests.cuda.test_sample import any_sequence, both, rows_of
from tests.tiers import TIER, fewer, thinned
from twostroke.backends.cuda.device import CudaDevice
from twostroke.backends.cuda.library import cuda_op_numbers
from twostroke.ops.operands import PackedWeight
from twostroke.types.errors import BackendError

pytestmark = pytest.mark.slow  # the build that checks each access is compiled first, which takes most of a minute
OF_EACH = 3 if TIER.daily else 1
"""The number of cases of an op. The smallest ones run, because every byte that they access is checked."""


def size_of(case: OpCase) -> int:
    return sum(int(getattr(getattr(item, "data", item), "nbytes", 0)) for item in case.operands)


def stored_kind(case: OpCase) -> str:
    """The kind of a weight that keeps a file's codes. Each kind has code of its own that reads it."""
    kinds = (item.format.kind for item in case.operands if isinstance(item, PackedWeight))
    return next((kind.name for kind in kinds if kind.is_stored), "")


def of_each_op() -> list[OpCase]:
    cases: dict[str, list[OpCase]] = {}
    for case in sorted(op_cases(), key=size_of):
        cases.setdefault(f"{case.op} {stored_kind(case)}", []).append(case)
    return [case for of_one in cases.values() for case in of_one[:OF_EACH]]


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaDevice]:
    made = device(watched=True)
    yield made
    made.close()


def test_ops(gpu: CudaDevice) -> None:
    ops = cuda_op_numbers(built_folder()).keys()
    cases = [case for case in of_each_op() if case.op in ops]
    assert {case.op for case in cases} == ops, "an op without a case here"
    for seed, case in enumerate(cases):
        controls(watched=True).fake_orders(seed)
        try:
            on_device(gpu, case)
        except BackendError as error:
            pytest.fail(f"{case.op}: {case.words}: {error} {wrong()}")


def test_sampling(gpu: CudaDevice) -> None:
    for seed in thinned(range(4), "sampling", fewer(4, quick=1)):
        rng = np.random.default_rng(seed)
        controls(watched=True).fake_orders(seed)
        sequences = [any_sequence(rng, index, 300) for index in range(18)]
        expected, found, _ = both(gpu, rows_of(rng, 18, 300), sequences)
        assert repr(found) == repr(expected)
