"""Pages of latents in the emulator: written, read and chosen bit for bit as on the CPU; each head's own matrix."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.cuda.same_bits import same_bits
from tests.ops.banks import bank
from tests.ops.native import FORMATS, format_id
from tests.ops.test_latent_native import batch_of, empty_layer, filled_layer, normal
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.types.spec.formats import KVKind, WeightFormat

SIZES = ((16, 8), (20, 6), (7, 5), (512, 64))
"""The size of a latent, and of the turned key after it."""


@pytest.mark.parametrize(("kind", "sizes"), itertools.product(KVKind, (*SIZES, (15, 2))))
def test_latent_write(cpu: CpuOps, gpu: CudaDevice, kind: KVKind, sizes: tuple[int, int]) -> None:
    rows = normal(21, sum(sizes), seed=1)
    rows[0], rows[1, : sizes[0]], rows[2, sizes[0] :] = 0, 0, 0
    rows[3] *= 1e-42
    rows[4, 1], rows[5, -1], rows[6, 3] = np.nan, -np.inf, -1e30
    slots = np.random.default_rng(3).permutation(64)[:21].astype(np.int32)
    layer = empty_layer(kind, 4, *sizes)
    layer.data.view(np.uint8)[...] = 3
    same_bits(cpu, gpu, "latent_write", (layer, rows, slots), tolerance=None)


@pytest.mark.parametrize("kind", KVKind)
@pytest.mark.parametrize(
    ("sizes", "contexts", "counts"),
    [
        ((16, 8), (70, 1, 130), (3, 1, 66)),
        ((20, 6), (600,), (2,)),
        ((512, 64), (65,), (2,)),
        ((7, 5), (33, 20), (33, 1)),
    ],
)
def test_latent_attention(
    cpu: CpuOps,
    gpu: CudaDevice,
    kind: KVKind,
    sizes: tuple[int, int],
    contexts: tuple[int, ...],
    counts: tuple[int, ...],
) -> None:
    layer, table = filled_layer(kind, sizes, contexts)
    rows = sum(counts)
    q, turned = normal(rows, 3, sizes[0], seed=2), normal(rows, 3, sizes[1], seed=3)
    operands = (np.zeros_like(q), q, turned, layer, batch_of(contexts, counts, table), 0.1)
    same_bits(cpu, gpu, "latent_attention", (*operands, 0), tolerance=2e-4)
    same_bits(cpu, gpu, "latent_attention", (*operands, 40), tolerance=2e-4)


@pytest.mark.parametrize("kind", KVKind)
@pytest.mark.parametrize(("contexts", "counts", "choices"), [((70, 1, 130), (3, 1, 66), 20), ((600,), (3,), 64)])
def test_chosen_latent_attention(
    cpu: CpuOps, gpu: CudaDevice, kind: KVKind, contexts: tuple[int, ...], counts: tuple[int, ...], choices: int
) -> None:
    layer, table = filled_layer(kind, (16, 8), contexts)
    rows, positions = sum(counts), [c - n + i for c, n in zip(contexts, counts, strict=True) for i in range(n)]
    chosen, rng = np.full((rows, choices), -1, np.float32), np.random.default_rng(5)
    for row, position in enumerate(positions):
        count = min(choices, position + 1)
        chosen[row, :count] = np.sort(rng.permutation(position + 1)[:count])
    q, turned = normal(rows, 2, 16, seed=2), normal(rows, 2, 8, seed=3)
    operands = (np.zeros_like(q), q, turned, chosen, layer, batch_of(contexts, counts, table), 0.1)
    same_bits(cpu, gpu, "chosen_latent_attention", operands, tolerance=2e-4)


@pytest.mark.parametrize("kind", KVKind)
@pytest.mark.parametrize(("contexts", "counts", "choices"), [((70, 1, 130), (3, 1, 20), 16), ((600,), (18,), 64)])
def test_index_select(
    cpu: CpuOps, gpu: CudaDevice, kind: KVKind, contexts: tuple[int, ...], counts: tuple[int, ...], choices: int
) -> None:
    layer, table = filled_layer(kind, (16, 8), contexts)
    rows = sum(counts)
    q, weights = normal(rows, 4, 24, seed=2), normal(rows, 4, seed=3)
    weights[rows // 2] = 0.0  # equal scores: the first positions are taken
    operands = (np.zeros((rows, choices), np.float32), q, weights, layer, batch_of(contexts, counts, table))
    (found,) = same_bits(cpu, gpu, "index_select", operands, tolerance=None)
    assert np.array_equal(found[rows // 2][:2], [0, 1]) or found[rows // 2][1] == -1


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
def test_head_linear(cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat) -> None:
    weight, x = bank(3, 70, 40, weight_format), normal(9, 3, 40)
    operands = (np.zeros((9, 3, 70), np.float32), x, weight)
    same_bits(cpu, gpu, "head_linear", operands, tolerance=0.05 if weight_format.group else 1e-4)
