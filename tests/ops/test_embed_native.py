"""ts_embed at every level that this machine runs, against ops/products/embed.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import (
    FORMATS,
    IN_FEATURES,
    LEVELS,
    OUT_FEATURES,
    Answers,
    check_guard,
    embed_answer,
    format_id,
    guarded,
    random_weight,
)
from twostroke.backends.cpu.ops import CpuOps
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32, WeightFormat


@pytest.fixture(params=LEVELS, scope="module")
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(str(request.param), 2)
    yield made
    made.close()


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
@pytest.mark.parametrize("columns", IN_FEATURES)
@pytest.mark.parametrize("rows", OUT_FEATURES)
def test_embed_is_the_reference_exactly(rows: int, columns: int, weight_format: WeightFormat, ops: CpuOps) -> None:
    table = random_weight(rows, columns, weight_format, with_bias=False)
    chosen = (0, rows - 1, rows // 2, 0, *range(min(rows, 3)))
    token_ids = np.array(chosen, np.int32)
    for count in (0, 1, len(token_ids)):
        out, room = guarded(count, columns)
        ops.embed(out, table, token_ids[:count])
        check_guard(out, room)
        if Answers.checked:
            np.testing.assert_array_equal(out, embed_answer(rows, columns, weight_format, chosen)[:count])


@pytest.mark.parametrize("token_id", [-1, 65, 127])
def test_token_ids_outside_the_table_are_refused(ops: CpuOps, token_id: int) -> None:
    table = random_weight(65, 31, F32, with_bias=False)  # 128 rows with padding
    out, room = guarded(2, 31)
    with pytest.raises(BackendError, match="index"):
        ops.embed(out, table, np.array([0, token_id], np.int32))
    assert np.all(room == 7)
