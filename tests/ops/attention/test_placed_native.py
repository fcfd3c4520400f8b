"""placed_attention at every level: places and rows that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.attention.test_attention_native import filled_layer, queries
from tests.ops.native import batch_of
from twostroke.backends.cpu import CpuOps
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

TEXTS = (1, 40, 70, 150)
"""The tokens of each text, all of whose positions are rows of the step."""
REACH, PLACES = 20, 9


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def test_what_does_not_fit_is_refused(ops: CpuOps) -> None:
    layer, pages = filled_layer(KVKind.F32, 2, 16, TEXTS)
    q, out = queries(4, 2, 0, 16, 99), np.empty((4, 2, 16), np.float32)
    by_key, places = drawn(4, 2, PLACES, seed=1), np.zeros(3, np.float32)
    whole, part = batch_of((4,), (4,), pages[3:]), batch_of((40,), (4,), pages[1:2])
    ops.placed_attention(out, q, layer, whole, 1.0, places, None, None, by_key, ALL_AHEAD)
    for batch, wrong in ((part, places), (whole, places + PLACES), (whole, places[:2])):
        with pytest.raises(BackendError):
            ops.placed_attention(out, q, layer, batch, 1.0, wrong, None, None, by_key, ALL_AHEAD)


