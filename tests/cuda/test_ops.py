"""The kernels in the emulator over grids of ops: bit for bit what the CPU's level with fused multiply-add gives, and
near the reference.

Orders of threads and blocks are drawn from a seed; shared memory that no barrier orders is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cuda.fake import device, same_level
from tests.cuda.operands import run_on
from tests.ops.native import FORMATS, format_id, random_rows, random_weight
from tests.tiers import fewer
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import AttentionBatch, RopeTable, new_kv_layer
from twostroke.ops.registry import registry
from twostroke.ops.rows.activation import Activation
from twostroke.types.spec.formats import BF16, F32, KVKind, WeightFormat

LEVEL = same_level()
KINDS = [F32, BF16, *(each for each in FORMATS if each.group)]
PRODUCTS_OF_FLOATS = [
    *((70, 1201, 1), (33, 1164, 2), (40, 700, 7), (130, 600, 37), (6337, 136, 33)),
    pytest.param(12801, 100, 65, marks=pytest.mark.slow),
]
"""Rows of the matrix, columns, rows of x: one for each shape of block."""
PRODUCTS = [(1, 1, 1), (65, 127, 5), (200, 300, 3), (64, 600, 9), (130, 64, 130)]
SEEDS = range(1, fewer(3, 2))


@pytest.fixture(scope="module")
def cpu() -> Iterator[CpuOps]:
    if LEVEL is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    ops = CpuOps(LEVEL, 1)
    yield ops
    ops.close()


@pytest.fixture(scope="module", params=SEEDS)
def gpu(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    made = device(request.param)
    yield made
    made.close()


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Gaussian float32, with some zeros and large ones."""
    rng = np.random.default_rng([seed, *shape])
    found = rng.standard_normal(shape).astype(np.float32)
    found[rng.random(shape) < 0.02] = 0.0
    found[rng.random(shape) < 0.02] *= 40.0
    return found


def same(cpu: CpuOps, gpu: CudaDevice, name: str, *operands: Any, tolerance: float = 2e-5) -> None:
    """operands: the first is changed. Fails where the device's bits are not the CPU's, or far from the reference's."""
    first = operands[0]
    ours = run_on(gpu, name, *operands)
    theirs, defined = first.copy(), first.copy()
    getattr(cpu, name)(theirs, *operands[1:])
    with np.errstate(all="ignore"):
        arguments = [np.ascontiguousarray(each) if isinstance(each, np.ndarray) else each for each in operands[1:]]
        registry()[name].reference(defined, *arguments)
    assert ours.tobytes() == theirs.tobytes()
    np.testing.assert_allclose(ours, defined, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(defined).max())))


@pytest.mark.parametrize("weight_format", KINDS, ids=format_id)
@pytest.mark.parametrize(
    ("rows", "columns", "count"), [(1, 1, 1), (65, 127, 5), (200, 300, 3), (64, 600, 9), (130, 64, 130)]
)
def test_products(
    cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, rows: int, columns: int, count: int
) -> None:
    weight, x = (
        random_weight(rows, columns, weight_format, rows % 2 == 1),
        np.ascontiguousarray(random_rows(count, columns)),
    )
    same(cpu, gpu, "linear", np.zeros((count, rows), np.float32), x, weight)
    same(cpu, gpu, "linear_add", numbers(count, rows), x, weight)
    if rows % 2 == 0:
        same(cpu, gpu, "linear_silu", np.zeros((count, rows // 2), np.float32), x, weight, tolerance=1e-4)


@pytest.mark.parametrize("weight_format", [F32, BF16], ids=format_id)
@pytest.mark.parametrize(("rows", "columns", "count"), PRODUCTS_OF_FLOATS)
def test_products_of_floats(
    cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat, rows: int, columns: int, count: int
) -> None:
    """Columns that do not fit shared memory at once."""
    weight, x = random_weight(rows, columns, weight_format, True), np.ascontiguousarray(random_rows(count, columns))
    same(cpu, gpu, "linear", np.zeros((count, rows), np.float32), x, weight, tolerance=1e-4)


def test_products_of_extreme_rows(cpu: CpuOps, gpu: CudaDevice) -> None:
    x = np.zeros((6, 128), np.float32)
    x[1] = 1e-38
    x[2, 5] = 3e38
    x[3] = -1.0
    x[4] = np.linspace(-127, 127, 128, dtype=np.float32) + np.float32(0.5)
    x[5, 64:] = 1.0
    for weight_format in KINDS[2:]:
        weight = random_weight(64, 128, weight_format, False)
        ours = run_on(gpu, "linear", np.zeros((6, 64), np.float32), x, weight)
        theirs = np.zeros((6, 64), np.float32)
        cpu.linear(theirs, x, weight)
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("weight_format", KINDS, ids=format_id)
def test_feed_forward_and_embed(cpu: CpuOps, gpu: CudaDevice, weight_format: WeightFormat) -> None:
    both, down = random_weight(300, 64, weight_format, True), random_weight(64, 150, weight_format, False)
    x, middle = numbers(7, 64), np.zeros((7, 150), np.float32)
    same(cpu, gpu, "feed_forward", numbers(7, 64, seed=1), x, both, down, middle, tolerance=1e-3)
    ids = np.array([0, 299, 63, 64, 65, 128], np.int32)
    same(cpu, gpu, "embed", np.zeros((6, 64), np.float32), both, ids)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 64, 300, 4200])
def test_norms(cpu: CpuOps, gpu: CudaDevice, width: int) -> None:
    x, weight, bias = numbers(5, width), numbers(width, seed=1), numbers(width, seed=2)
    same(cpu, gpu, "rms_norm", np.zeros_like(x), x, weight, 1e-6)
    same(cpu, gpu, "layer_norm", np.zeros_like(x), x + np.float32(3), weight, bias, 1e-5, tolerance=1e-4)
    same(cpu, gpu, "layer_norm", np.zeros_like(x), x, weight, None, 1e-5, tolerance=1e-4)
    same(cpu, gpu, "head_norm", numbers(3, 4, width), weight, 1e-6)
    same(cpu, gpu, "head_layer_norm", numbers(3, 2, width), weight, bias, 1e-5, tolerance=1e-4)
    same(cpu, gpu, "head_layer_norm", numbers(3, 2, width), numbers(2 * width, seed=3), None, 1e-5, tolerance=1e-4)


@pytest.mark.parametrize("activation", list(Activation))
def test_elements(cpu: CpuOps, gpu: CudaDevice, activation: Activation) -> None:
    x, wide = numbers(4, 300), numbers(4, 600, seed=1)
    number = int(activation)
    same(cpu, gpu, "activate", x.copy(), number)
    same(cpu, gpu, "gate", np.zeros_like(x), wide, number, 0.0, 0.0)
    same(cpu, gpu, "gate", np.zeros_like(x), wide, number, 2.5, 1.0)
    same(cpu, gpu, "multiply", np.zeros_like(x), x, numbers(4, 300, seed=2), number)
    same(cpu, gpu, "multiply", np.zeros_like(x), x, numbers(4, 20, seed=3), number)


def test_other_elements(cpu: CpuOps, gpu: CudaDevice) -> None:
    x = numbers(5, 300)
    same(cpu, gpu, "add", x.copy(), numbers(5, 300, seed=1))
    same(cpu, gpu, "scale", x.copy(), 0.3)
    same(cpu, gpu, "soft_cap", x.copy(), 3.0)
    same(cpu, gpu, "clamp", x.copy(), 0.5)
    same(cpu, gpu, "gather_rows", np.zeros((3, 300), np.float32), x, np.array([4, 0, 4], np.int32))
    angles = numbers(9, 12)
    table = RopeTable(np.cos(angles), np.sin(angles))
    same(cpu, gpu, "rope", numbers(4, 3, 32), table, np.array([8, 0, 3, 3], np.int32))


def pages(kind: KVKind, heads: int, dim: int, tokens: int, cpu: CpuOps, value_dim: int = 0) -> tuple[Any, np.ndarray]:
    """A layer in which one sequence has `tokens` positions, and its page table. value_dim: of V; 0 for that of K."""
    count = -(-tokens // 16)
    table = np.random.default_rng(count).permutation(count + 2)[:count].astype(np.int32)
    layer, positions = new_kv_layer(kind, count + 2, heads, dim, value_dim), np.arange(tokens)
    slots = (table[positions // 16] * 16 + positions % 16).astype(np.int32)
    cpu.kv_write(layer, numbers(tokens, heads, dim, seed=1), numbers(tokens, heads, value_dim or dim, seed=2), slots)
    return layer, table


@pytest.mark.parametrize("kind", list(KVKind))
@pytest.mark.parametrize("dim", [1, 31, 33, 64])
def test_pages_byte_for_byte(cpu: CpuOps, gpu: CudaDevice, kind: KVKind, dim: int) -> None:
    k, v = numbers(20, 2, dim, seed=3), numbers(20, 2, dim, seed=4)
    k[1], v[2], k[3, 0, 0], v[4, 1, dim - 1] = 0.0, 1e-42, np.inf, np.nan
    slots = np.random.default_rng(5).permutation(48)[:20].astype(np.int32)
    ours = run_on(gpu, "kv_write", new_kv_layer(kind, 3, 2, dim), k, v, slots)
    theirs = new_kv_layer(kind, 3, 2, dim)
    cpu.kv_write(theirs, k, v, slots)
    if kind is KVKind.F32:
        np.testing.assert_array_equal(ours, theirs.data)
    else:
        assert ours.tobytes() == theirs.data.tobytes()


ATTENTION = [  # dim, tokens, rows, window, extras
    (32, 1, 1, 0, ""),
    (33, 70, 7, 0, "cap"),
    (64, 600, 2, 0, "sinks"),
    (16, 1100, 1, 530, "slopes"),
    (40, 130, 66, 20, "cap sinks"),
    (128, 513, 3, 0, ""),
    (32, 90, 60, -40, "ahead"),
    (20, 110, 70, -40, "ahead"),
    (36, 590, 67, 0, "slopes sinks"),
]


@pytest.mark.parametrize("kind", list(KVKind))
@pytest.mark.parametrize(("dim", "tokens", "rows", "window", "extras"), ATTENTION)
def test_attention(
    cpu: CpuOps, gpu: CudaDevice, kind: KVKind, dim: int, tokens: int, rows: int, window: int, extras: str
) -> None:
    layer, table = pages(kind, 2, dim, tokens, cpu)
    batch = AttentionBatch(np.array([0, rows], np.int32), np.array([tokens], np.int32), table[None])
    sinks = numbers(6, seed=8) if "sinks" in extras else None
    slopes = np.linspace(0.01, 0.5, 6, dtype=np.float32) if "slopes" in extras else None
    cap = 5.0 if "cap" in extras else 0.0
    q, out = numbers(rows, 6, dim, seed=7), np.zeros((rows, 6, dim), np.float32)
    ahead = 9 if "ahead" in extras else 0
    rounding = 0.05 if kind.is_integer else 2e-4
    same(cpu, gpu, "attention", out, q, layer, batch, dim**-0.5, window, cap, sinks, slopes, ahead, tolerance=rounding)


@pytest.mark.parametrize("kind", list(KVKind))
@pytest.mark.parametrize(("dim", "value_dim"), [(48, 33), (17, 64)])
def test_heads_of_v_of_another_size(cpu: CpuOps, gpu: CudaDevice, kind: KVKind, dim: int, value_dim: int) -> None:
    layer, table = pages(kind, 2, dim, 90, cpu, value_dim)
    k, v = numbers(5, 2, dim, seed=3), numbers(5, 2, value_dim, seed=4)
    slots = np.array([3, 20, 21, 40, 0], np.int32)
    ours, theirs = run_on(gpu, "kv_write", layer, k, v, slots), layer.data.copy()
    cpu.kv_write(layer, k, v, slots)
    assert ours.tobytes() == layer.data.tobytes() != theirs.tobytes()
    batch = AttentionBatch(np.array([0, 4], np.int32), np.array([90], np.int32), table[None])
    out = np.zeros((4, 4, value_dim), np.float32)
    same(cpu, gpu, "attention", out, numbers(4, 4, dim), layer, batch, 0.2, 0, 0.0, None, None, tolerance=0.05)


@pytest.mark.parametrize("kind", list(KVKind))
@pytest.mark.parametrize(("heads", "rows"), [(2, (1, 3)), (9, (2,)), (10, (1, 1, 1)), (17, (1, 65))])
def test_heads_and_sequences_that_share_pages(
    cpu: CpuOps, gpu: CudaDevice, kind: KVKind, heads: int, rows: tuple[int, ...]
) -> None:
    """heads: of queries for one of K and V. A sequence sees the first positions of the same pages."""
    tokens = 540
    layer, table = pages(kind, 1, 24, tokens, cpu)
    starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    contexts = np.array([tokens - 460 * (index % 2) for index in range(len(rows))], np.int32)
    batch = AttentionBatch(starts, contexts, np.tile(table, (len(rows), 1)))
    q, out = numbers(sum(rows), heads, 24, seed=7), np.zeros((sum(rows), heads, 24), np.float32)
    same(cpu, gpu, "attention", out, q, layer, batch, 0.2, 0, 0.0, None, None, tolerance=0.05)
