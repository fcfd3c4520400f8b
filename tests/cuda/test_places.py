"""place_scores and placed_attention in the emulator: bit for bit as on the CPU, and near their references."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.operands import run_on
from tests.cuda.same_bits import same_bits
from tests.cuda.test_states import numbers
from tests.ops.test_attention_native import batch_of, filled_layer
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

PLACES, REACH = 9, 20
PLACE_OF = np.floor(np.linspace(0, PLACES - 0.01, 2 * REACH + 1)).astype(np.float32)
SHAPES = [((1, 40, 70), (2, 3), 20), ((1, 1, 530), (1, 1), 33), ((67,), (2, 8), 16)]
"""Tokens of each text, KV heads with the query heads of each, dimensions."""


@pytest.mark.parametrize(("rows", "heads", "dim", "places"), [(1, 1, 1, 1), (9, 2, 15, 40), (17, 3, 20, 300)])
def test_place_scores(cpu: CpuOps, gpu: CudaDevice, rows: int, heads: int, dim: int, places: int) -> None:
    out, table = np.zeros((rows, heads, places), np.float32), numbers(heads * dim * places, seed=2)
    same_bits(cpu, gpu, "place_scores", (out, numbers(rows, heads, dim), table))


@pytest.mark.parametrize("kind", list(KVKind))
@pytest.mark.parametrize("parts", [(True, False, False), (False, True, True), (True, True, True)])
@pytest.mark.parametrize(("texts", "shape", "dim"), SHAPES)
def test_placed_attention(
    cpu: CpuOps,
    gpu: CudaDevice,
    kind: KVKind,
    parts: tuple[bool, bool, bool],
    texts: tuple[int, ...],
    shape: tuple[int, int],
    dim: int,
) -> None:
    layer, pages = filled_layer(kind, shape[0], dim, texts)
    heads, rows = shape[0] * shape[1], sum(texts)
    table = numbers(heads * PLACES, seed=3) if parts[0] else None
    beside = [numbers(rows, heads, PLACES, seed=4 + i) if parts[1 + i] else None for i in range(2)]
    q, out = numbers(rows, heads, dim, seed=7), np.zeros((rows, heads, dim), np.float32)
    batch = batch_of(texts, texts, pages)
    operands = (out, q, layer, batch, dim**-0.5, PLACE_OF, table, *beside, ALL_AHEAD)
    same_bits(cpu, gpu, "placed_attention", operands, tolerance=0.05 if kind.is_integer else 2e-4)


def test_places_that_are_none_and_shapes_that_do_not_fit(cpu: CpuOps, gpu: CudaDevice) -> None:
    """Places lie on the device: the kernel makes NaN of rows that meet a wrong one."""
    layer, pages = filled_layer(KVKind.F32, 2, 16, (4, 40))
    q, out = numbers(4, 2, 16), np.zeros((4, 2, 16), np.float32)
    by_key, whole, part = numbers(4, 2, PLACES), batch_of((4,), (4,), pages[:1]), batch_of((40,), (4,), pages[1:])
    wrong = PLACE_OF + np.float32(PLACES)
    operands = (out, q, layer, whole, 1.0, wrong, None, None, by_key, ALL_AHEAD)
    assert np.isnan(run_on(gpu, "placed_attention", *operands)).all()
    for batch, places in ((part, PLACE_OF), (whole, PLACE_OF[:2])):
        with pytest.raises(BackendError):
            run_on(gpu, "placed_attention", out, q, layer, batch, 1.0, places, None, None, by_key, ALL_AHEAD)
    with pytest.raises(BackendError):
        run_on(gpu, "place_scores", numbers(4, 2, 3), q, numbers(7))
