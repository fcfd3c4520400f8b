"""Ops that keep states, in the emulator: outputs and states bit for bit as on the CPU, several sequences together."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.cuda.same_bits import same_bits
from tests.ops.native import random_rows
from tests.ops.test_states_native import batch_of
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import AttentionBatch
from twostroke.ops.rows.activation import Activation

COUNTS = [9, 1, 0, 5]
"""Rows of the sequences of a step."""
ROWS = sum(COUNTS)
SLOTS = np.array([3, 0, 2, 4], np.int32)


def batch() -> AttentionBatch:
    made = batch_of(COUNTS)
    return AttentionBatch(made.row_starts, made.context_tokens, np.zeros((len(COUNTS), 1), np.int32))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def check(cpu: CpuOps, gpu: CudaDevice, name: str, elements: int, width: tuple[int, ...], *operands: Any) -> None:
    """operands: between out and the state; then those after the batch, in a list."""
    *inputs, behind = operands
    whole = (np.zeros((ROWS, *width), np.float32), *inputs, numbers(5, elements), SLOTS, batch(), *behind)
    found = same_bits(cpu, gpu, name, whole, (0, 1 + len(inputs)), 3e-5)
    assert np.array_equal(found[1][1], whole[1 + len(inputs)][1])  # the slot that no sequence has


CONVS = list(itertools.product((1, 15, 300), (2, 4), (False, True), (Activation.SILU, Activation.IDENTITY)))


@pytest.mark.parametrize(("channels", "taps", "biased", "activation"), thinned(CONVS, "short_conv on a device"))
def test_short_conv(
    cpu: CpuOps, gpu: CudaDevice, channels: int, taps: int, biased: bool, activation: Activation
) -> None:
    weights = numbers(taps * channels)
    bias = numbers(channels, seed=1) if biased else None
    check(
        cpu,
        gpu,
        "short_conv",
        (taps - 1) * channels,
        (channels,),
        random_rows(ROWS, channels),
        weights,
        bias,
        [int(activation)],
    )


SCANS = list(itertools.product(((1, 1), (4, 2), (6, 1)), (1, 20, 64), (1, 33, 64, 128), ((0.0, np.inf), (0.1, 0.9))))


@pytest.mark.parametrize(("shared", "width", "size", "limit"), thinned(SCANS, "ssd_scan on a device"))
def test_ssd_scan(
    cpu: CpuOps, gpu: CudaDevice, shared: tuple[int, int], width: int, size: int, limit: tuple[float, float]
) -> None:
    heads, groups = shared
    x, b, c = numbers(ROWS, heads, width), numbers(ROWS, groups, size, seed=1), numbers(ROWS, groups, size, seed=2)
    dt, decay = 2 * numbers(ROWS, heads, seed=3), -np.exp(numbers(heads, seed=4))
    inputs = (x, b, c, dt, decay, numbers(heads, seed=5), numbers(heads, seed=6))
    check(cpu, gpu, "ssd_scan", heads * width * size, (heads, width), *inputs, limit)


@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize("channels", [1, 40, 300])
def test_selective_scan(cpu: CpuOps, gpu: CudaDevice, channels: int, size: int) -> None:
    x, dt = numbers(ROWS, channels), 2 * numbers(ROWS, channels, seed=1)
    b, c = numbers(ROWS, size, seed=2), numbers(ROWS, size, seed=3)
    decay = -np.exp(numbers(size * channels, seed=4))
    check(cpu, gpu, "selective_scan", size * channels, (channels,), x, dt, b, c, decay, numbers(channels, seed=5), ())


@pytest.mark.parametrize("channels", [1, 40, 300])
def test_rg_lru(cpu: CpuOps, gpu: CudaDevice, channels: int) -> None:
    x, gates = numbers(ROWS, channels), (2 * numbers(ROWS, channels, seed=1), 2 * numbers(ROWS, channels, seed=2))
    check(cpu, gpu, "rg_lru", channels, (channels,), x, *gates, numbers(channels, seed=3), ())


@pytest.mark.parametrize("channels", [1, 40, 300])
def test_wkv4(cpu: CpuOps, gpu: CudaDevice, channels: int) -> None:
    inputs = (3 * numbers(ROWS, channels), numbers(ROWS, channels, seed=1))
    vectors = (numbers(channels, seed=2), -np.exp(numbers(channels, seed=3)))
    check(cpu, gpu, "wkv4", 3 * channels, (channels,), *inputs, *vectors, ())


@pytest.mark.parametrize(("heads", "rows", "width"), [(1, 1, 1), (3, 20, 33), (1, 64, 300)])
def test_mlstm(cpu: CpuOps, gpu: CudaDevice, heads: int, rows: int, width: int) -> None:
    inputs = (numbers(ROWS, heads, rows), numbers(ROWS, heads, rows, seed=1), numbers(ROWS, heads, width, seed=2))
    gates = (3 * numbers(ROWS, heads, seed=3), 3 * numbers(ROWS, heads, seed=4))
    check(cpu, gpu, "mlstm", heads * (rows * width + rows + 1), (heads, width), *inputs, *gates, [1e-6])


RULES = ((1.0,), (2.0,), (1.0, -5.0))
DELTAS = list(itertools.product(((1, 1), (4, 2)), (1, 20, 64, 128), (1, 20, 130), (False, True), RULES))


@pytest.mark.parametrize(("shared", "rows", "width", "each", "rule"), thinned(DELTAS, "delta_rule on a device"))
def test_delta_rule(
    cpu: CpuOps, gpu: CudaDevice, shared: tuple[int, int], rows: int, width: int, each: bool, rule: tuple[float, ...]
) -> None:
    heads, key_heads = shared
    gates = heads * rows if each else heads
    q, k, v = (
        numbers(ROWS, key_heads, rows),
        numbers(ROWS, key_heads, rows, seed=1),
        numbers(ROWS, heads, width, seed=2),
    )
    a, b = numbers(ROWS, gates, seed=3), numbers(ROWS, heads, seed=4)
    inputs = (q, k, v, a, b, -np.exp(numbers(heads, seed=5)), numbers(gates, seed=6))
    check(cpu, gpu, "delta_rule", heads * rows * width, (heads, width), *inputs, rule)


@pytest.mark.parametrize("gate_first", [0, 1])
@pytest.mark.parametrize(("width", "groups", "shared"), [(1, 1, False), (96, 3, False), (96, 3, True), (300, 1, False)])
def test_gated_norm(cpu: CpuOps, gpu: CudaDevice, width: int, groups: int, shared: bool, gate_first: int) -> None:
    x, gate = numbers(7, width), numbers(7, width, seed=1)
    weight = numbers(width // groups if shared else width, seed=2)
    operands = (x.copy(), x, gate, weight, 1e-5, groups, int(Activation.SILU), gate_first)
    same_bits(cpu, gpu, "gated_norm", operands)
