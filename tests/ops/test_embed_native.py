"""ts_embed at every level that this machine runs, against ops/embed.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import FORMATS, IN_FEATURES, LEVELS, OUT_FEATURES, check_guard, format_id, guarded, random_weight
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops import embed
from twostroke.spec.formats import F32, WeightFormat
from twostroke.types.errors import BackendError


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
@pytest.mark.parametrize("columns", IN_FEATURES)
@pytest.mark.parametrize("rows", OUT_FEATURES)
def test_embed_is_the_reference_exactly(rows: int, columns: int, weight_format: WeightFormat, level: str) -> None:
    table = random_weight(rows, columns, weight_format, with_bias=False)
    token_ids = np.array([0, rows - 1, rows // 2, 0, *range(min(rows, 3))], np.int32)
    expected = np.empty((len(token_ids), columns), np.float32)
    embed.reference(expected, table, token_ids)
    for count in (0, 1, len(token_ids)):
        out, room = guarded(count, columns)
        ops = CpuOps(level, 2)
        ops.embed(out, table, token_ids[:count])
        ops.close()
        check_guard(out, room)
        np.testing.assert_array_equal(out, expected[:count])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("token_id", [-1, 65, 127])
def test_token_ids_outside_the_table_are_refused(level: str, token_id: int) -> None:
    table = random_weight(65, 31, F32, with_bias=False)  # 128 rows with padding
    out, room = guarded(2, 31)
    with pytest.raises(BackendError, match="index"):
        CpuOps(level, 1).embed(out, table, np.array([0, token_id], np.int32))
    assert np.all(room == 7)
