"""The op embed at every level that this machine runs: the token ids that are refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, guarded, random_weight
from twostroke.backends.cpu.ops import CpuOps
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32


@pytest.fixture(params=LEVELS, scope="module")
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(str(request.param), 2)
    yield made
    made.close()


@pytest.mark.parametrize("token_id", [-1, 65, 127])
def test_token_ids_outside_the_table_are_refused(ops: CpuOps, token_id: int) -> None:
    table = random_weight(65, 31, F32, with_bias=False)  # 128 rows with padding
    out, room = guarded(2, 31)
    with pytest.raises(BackendError, match="index"):
        ops.embed(out, table, np.array([0, token_id], np.int32))
    assert np.all(room == 7)
