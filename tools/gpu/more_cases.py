"""Calls of the ops of mixtures of experts and of states, as cases.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tools.gpu.cases import FORMATS, OpCase, numbers

from twostroke.ops.operands import AttentionBatch, PackedWeight
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.rows.activation import Activation
from twostroke.types.spec.formats import WeightFormat
from twostroke.weights.packed.blobs import aligned_bytes

COUNTS = (9, 1, 0, 5)
"""Rows of the sequences of a step with states."""
ROWS = sum(COUNTS)
SLOTS = np.array([3, 0, 2, 4], np.int32)


def more_cases() -> Iterator[OpCase]:
    """All of them."""
    yield from _choices()
    for weight_format in FORMATS:
        yield from _experts(weight_format)
    yield from _states()
    yield from _scans()


def _choices() -> Iterator[OpCase]:
    for experts, chosen in ((8, 2), (128, 8)):
        logits, out = 3 * numbers(9, experts), np.zeros((9, 2 * chosen), np.float32)
        yield OpCase("route", f"{chosen} of {experts}", (out, logits, 1))
    yield OpCase("sparse_mixer", "2 of 16", (np.zeros((9, 4), np.float32), numbers(9, 16), 0.01))


def _bank(count: int, rows: int, columns: int, weight_format: WeightFormat) -> PackedWeight:
    """A Gaussian bank."""
    return joined([pack_weight(numbers(rows, columns, seed=20 + i), weight_format) for i in range(count)])


def joined(parts: Sequence[PackedWeight]) -> PackedWeight:
    """A bank of these, one after the other; without biases."""
    scales = [part.scales for part in parts if part.scales is not None]
    data = aligned_bytes(sum(part.data.size for part in parts))
    data[:] = np.concatenate([part.data for part in parts])
    first, together = parts[0], np.concatenate(scales) if scales else None
    return PackedWeight(first.format, first.rows, first.columns, data, together, None, len(parts))


def _experts(weight_format: WeightFormat) -> Iterator[OpCase]:
    width, inner, rows, chosen = 256, 128, 7, 2
    gate_up, down = _bank(6, 2 * inner, width, weight_format), _bank(6, width, inner, weight_format)
    rng = np.random.default_rng(5)
    numbers_of = np.stack([rng.permutation(6)[:chosen] for _ in range(rows)]).astype(np.float32)
    routes = np.concatenate((np.abs(numbers(rows, chosen)), numbers_of), axis=1)
    room = tuple(np.zeros((rows, size), np.float32) for size in (width, inner, 2))
    operands = (np.zeros((rows, width), np.float32), numbers(rows, width), routes, gate_up, down, *room)
    name = f"{weight_format.kind.name.lower()}, {chosen} of 6"
    yield OpCase("experts", name, operands)
    yield OpCase("idle_share", name, (np.zeros((rows, 1), np.float32), routes, 4))
    made = np.zeros((rows, width), np.float32)
    taken = (np.zeros((rows, chosen, width), np.float32), numbers(rows, 1, inner), routes, down, room[1].copy(), made)
    yield OpCase("chosen_linear", name, taken)


def sequences() -> AttentionBatch:
    """The sequences of a step with states."""
    starts = np.cumsum([0, *COUNTS]).astype(np.int32)
    context = np.array([count + 4 * (place % 2) for place, count in enumerate(COUNTS)], np.int32)
    return AttentionBatch(starts, context, np.zeros((len(COUNTS), 1), np.int32))


def _states() -> Iterator[OpCase]:
    channels, taps = 300, 4
    out, x, state = np.zeros((ROWS, channels), np.float32), numbers(ROWS, channels), numbers(5, (taps - 1) * channels)
    rest = (numbers(taps * channels), numbers(channels, seed=1), state, SLOTS, sequences(), int(Activation.SILU))
    yield OpCase("short_conv", f"{channels} channels", (out, x, *rest))
    operands = (numbers(7, 96), numbers(7, 96), numbers(7, 96, seed=1), numbers(32, seed=2), 1e-5, 3)
    yield OpCase("gated_norm", "96 in 3 groups", (*operands, int(Activation.SILU), 0))


def _scans() -> Iterator[OpCase]:
    heads, groups, width, size = 4, 2, 64, 33
    inputs = (
        numbers(ROWS, groups, size, seed=1),
        numbers(ROWS, groups, size, seed=2),
        2 * numbers(ROWS, heads, seed=3),
    )
    vectors = (-np.exp(numbers(heads, seed=4) / 4), numbers(heads, seed=5), numbers(heads, seed=6))
    out, x = np.zeros((ROWS, heads, width), np.float32), numbers(ROWS, heads, width)
    state = numbers(5, heads * width * size)
    yield OpCase("ssd_scan", "4 heads", (out, x, *inputs, *vectors, state, SLOTS, sequences(), 0.0, np.inf))
    channels, size = 300, 16
    steps = (2 * numbers(ROWS, channels, seed=1), numbers(ROWS, size, seed=2), numbers(ROWS, size, seed=3))
    behind = (-np.exp(numbers(size * channels, seed=4) / 4), numbers(channels, seed=5))
    out, state = np.zeros((ROWS, channels), np.float32), numbers(5, size * channels)
    x = numbers(ROWS, channels)
    yield OpCase("selective_scan", f"{channels} channels", (out, x, *steps, *behind, state, SLOTS, sequences()))
    gates, rates = (2 * numbers(ROWS, channels, seed=1), 2 * numbers(ROWS, channels, seed=2)), numbers(channels, seed=3)
    out, state = np.zeros((ROWS, channels), np.float32), numbers(5, channels)
    yield OpCase("rg_lru", f"{channels} channels", (out, x, *gates, rates, state, SLOTS, sequences()))
    rows, width = 20, 130
    q, k = numbers(ROWS, groups, rows), numbers(ROWS, groups, rows, seed=1)
    v, gates = numbers(ROWS, heads, width, seed=2), (numbers(ROWS, heads, seed=3), numbers(ROWS, heads, seed=4))
    vectors2 = (-np.exp(numbers(heads, seed=5) / 4), numbers(heads, seed=6))
    state = numbers(5, heads * rows * width)
    out = np.zeros((ROWS, heads, width), np.float32)
    yield OpCase("delta_rule", "4 heads", (out, q, k, v, *gates, *vectors2, state, SLOTS, sequences(), 1.0))
