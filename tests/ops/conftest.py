"""The kernels of each level that this machine runs, with one thread and with two."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.ops.native import LEVELS
from twostroke.backends.cpu.ops import CpuOps


@pytest.fixture(scope="module", params=list(itertools.product(LEVELS, (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()
