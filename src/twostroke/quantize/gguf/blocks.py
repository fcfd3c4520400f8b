"""Rounds float32 numbers to blocks of ggml's quantized types. The searches of scales are like those of llama.cpp's
quantizers without an importance matrix.

    BF16  1             the upper 16 bits of a float32, rounded
    Q4_0  32 elements   d float16; value d (q - 8); byte j: element j low, j + 16 high
    Q5_0  32            d float16, the fifth bits of all codes, their low 4 bits as Q4_0; value d (q - 16)
    Q8_0  32            d float16; value d q, int8
    Q4_K  256           d, dmin float16, 8 scales and 8 minima of 6 bits; value d s q - dmin m; s, m for 32 elements
    Q6_K  256           4 low bits, 2 high bits, 16 scales int8, d float16; value d s (q - 32); s for 16 elements

The layouts are those of ggml-common.h of llama.cpp. A search tries codes of a few slightly different scales. For given
codes, least squares gives the best scale (and minimum) in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import f32_to_bf16
from twostroke.quantize.mathematics.moments import F32Array
from twostroke.quantize.mathematics.solved import U8Array

TINY = np.float32(1e-30)
OPEN_STEPS = tuple(np.float32(step) for step in np.linspace(-0.9, 1.0, 20))
"""The search divides a block's range into (largest code + one of these numbers) steps, for each number in turn."""


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """A block type of ggml. number: the type's number in the file. elements, num_bytes: the size of a block. encode:
    (blocks, elements) -> (blocks, num_bytes)."""

    name: str
    number: int
    elements: int
    num_bytes: int
    encode: Callable[[F32Array], U8Array]

    def row_bytes(self, columns: int) -> int:
        """Returns the bytes of a row, whose columns must fill whole blocks."""
        return columns // self.elements * self.num_bytes

    def rows(self, values: F32Array) -> U8Array:
        """Encodes (rows, columns) float32 as (rows, row_bytes)."""
        blocks = self.encode(np.ascontiguousarray(values, np.float32).reshape(-1, self.elements))
        return blocks.reshape(len(values), -1)


def _octets(values: NDArray[np.generic]) -> U8Array:
    found: U8Array = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return found


def _half(values: F32Array) -> tuple[F32Array, U8Array]:
    """Rounds the values to float16. Returns them as float32 numbers and as bytes."""
    halves = np.clip(values, -65504, 65504).astype(np.float16)
    return halves.astype(np.float32), _octets(halves.reshape(-1, 1))


def _over(values: F32Array, steps: F32Array) -> F32Array:
    """Returns values / steps, and 0 where a step is 0."""
    found: F32Array = np.divide(
        values, steps, out=np.zeros(np.broadcast(values, steps).shape, np.float32), where=steps != 0
    )
    return found


def _signed_steps(blocks: F32Array, low: int, high: int) -> F32Array:
    """Returns for (..., n) the step sizes (...,) whose codes in [low, high] have the least squared error. A step size
    is negative where the number of largest magnitude is positive, because that number gets the code `low`, and -low >
    high."""
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1)[..., None], axis=-1)[..., 0]
    best_steps = _over(extreme, np.float32(low) + np.zeros_like(extreme))
    best = np.full(extreme.shape, -np.inf, np.float32)
    for change in OPEN_STEPS:
        steps = extreme / (np.float32(low) - change)
        codes = np.clip(np.rint(_over(blocks, steps[..., None])), low, high)
        products, squares = (blocks * codes).sum(axis=-1), (codes * codes).sum(axis=-1)
        gain = _over(products * products, squares)
        better = gain > best
        best_steps = np.where(better, _over(products, squares), best_steps)
        best = np.where(better, gain, best)
    return best_steps.astype(np.float32)


def _steps_and_minima(blocks: F32Array, most: int) -> tuple[F32Array, F32Array]:
    """Returns for (..., n) the steps and minima (...,), none of them negative: value = step q - minimum."""
    weights = np.sqrt(np.mean(blocks * blocks, axis=-1, keepdims=True)) + np.abs(blocks)
    low, high = np.minimum(blocks.min(axis=-1), 0), blocks.max(axis=-1)
    total = weights.sum(axis=-1)
    sums = (weights * blocks).sum(axis=-1)
    best_steps, best_minima = np.maximum(high - low, 0) / np.float32(most), -low
    best = _weighted_error(blocks, best_steps, best_minima, most, weights)
    for change in OPEN_STEPS:
        steps = (high - low) / (np.float32(most) + change)
        codes = np.clip(np.rint(_over(blocks - low[..., None], steps[..., None])), 0, most)
        first, second = (weights * codes).sum(axis=-1), (weights * codes * codes).sum(axis=-1)
        products = (weights * codes * blocks).sum(axis=-1)
        determinant = total * second - first * first
        found = _over(total * products - sums * first, determinant)
        minima = -_over(second * sums - first * products, determinant)
        found = np.where(minima < 0, _over(products, second), found)
        minima = np.maximum(minima, 0)
        error = _weighted_error(blocks, found, minima, most, weights)
        better = (error < best) & (determinant > 0) & (found > 0)
        best_steps, best_minima = np.where(better, found, best_steps), np.where(better, minima, best_minima)
        best = np.where(better, error, best)
    return best_steps.astype(np.float32), best_minima.astype(np.float32)


def _weighted_error(blocks: F32Array, steps: F32Array, minima: F32Array, most: int, weights: F32Array) -> F32Array:
    codes = np.clip(np.rint(_over(blocks + minima[..., None], steps[..., None])), 0, most)
    difference = codes * steps[..., None] - minima[..., None] - blocks
    found: F32Array = (weights * difference * difference).sum(axis=-1)
    return found


def q8_0(blocks: F32Array) -> U8Array:
    """Rounds (blocks, 32) numbers to Q8_0 and returns the bytes (blocks, 34)."""
    d, octets = _half(np.abs(blocks).max(axis=1) / np.float32(127))
    codes = np.clip(np.rint(_over(blocks, d[:, None])), -127, 127).astype(np.int8)
    return np.concatenate((octets, _octets(codes)), axis=1)


def q4_0(blocks: F32Array) -> U8Array:
    """Rounds (blocks, 32) numbers to Q4_0, with searched scales, and returns the bytes (blocks, 18)."""
    d, octets = _half(_signed_steps(blocks, -8, 7))
    codes = (np.clip(np.rint(_over(blocks, d[:, None])), -8, 7) + 8).astype(np.uint8)
    return np.concatenate((octets, codes[:, :16] | codes[:, 16:] << np.uint8(4)), axis=1)


def q5_0(blocks: F32Array) -> U8Array:
    """Rounds (blocks, 32) numbers to Q5_0, with searched scales, and returns the bytes (blocks, 22)."""
    d, octets = _half(_signed_steps(blocks, -16, 15))
    codes = (np.clip(np.rint(_over(blocks, d[:, None])), -16, 15) + 16).astype(np.uint8)
    low = (codes[:, :16] & np.uint8(15)) | codes[:, 16:] << np.uint8(4)
    high = np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")
    return np.concatenate((octets, high, low), axis=1)


def q4_k(blocks: F32Array) -> U8Array:
    """Rounds (blocks, 256) numbers to Q4_K, with searched scales and minima, and returns the bytes (blocks, 144)."""
    parts = blocks.reshape(-1, 8, 32)
    steps, minima = _steps_and_minima(parts, 15)
    d, d_octets = _half(steps.max(axis=1) / np.float32(63))
    dmin, dmin_octets = _half(minima.max(axis=1) / np.float32(63))
    s = np.clip(np.rint(_over(steps, d[:, None])), 0, 63).astype(np.uint8)
    m = np.clip(np.rint(_over(minima, dmin[:, None])), 0, 63).astype(np.uint8)
    real, least = d[:, None] * s, dmin[:, None] * m
    codes = np.clip(np.rint(_over(parts + least[..., None], real[..., None])), 0, 15).astype(np.uint8)
    packed = np.empty((len(parts), 12), np.uint8)
    packed[:, :4] = s[:, :4] | s[:, 4:] >> np.uint8(4) << np.uint8(6)
    packed[:, 4:8] = m[:, :4] | m[:, 4:] >> np.uint8(4) << np.uint8(6)
    packed[:, 8:] = (s[:, 4:] & np.uint8(15)) | (m[:, 4:] & np.uint8(15)) << np.uint8(4)
    pairs = codes.reshape(-1, 4, 2, 32)
    halves = pairs[:, :, 0] | pairs[:, :, 1] << np.uint8(4)
    return np.concatenate((d_octets, dmin_octets, packed, halves.reshape(-1, 128)), axis=1)


def q6_k(blocks: F32Array) -> U8Array:
    """Rounds (blocks, 256) numbers to Q6_K, with searched scales, and returns the bytes (blocks, 210)."""
    parts = blocks.reshape(-1, 16, 16)
    steps = _signed_steps(parts, -32, 31)
    extreme = np.take_along_axis(steps, np.abs(steps).argmax(axis=1)[:, None], axis=1)[:, 0]
    d, octets = _half(extreme / np.float32(-128))
    scales = np.clip(np.rint(_over(steps, d[:, None])), -128, 127)
    real = (d[:, None] * scales).astype(np.float32)
    codes = (np.clip(np.rint(_over(parts, real[..., None])), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (codes[:, :, :2] & np.uint8(15)) | (codes[:, :, 2:] & np.uint8(15)) << np.uint8(4)
    high = np.zeros((len(codes), 2, 32), np.uint8)
    for place in range(4):
        high |= codes[:, :, place] >> np.uint8(4) << np.uint8(2 * place)
    parts_of = (low.reshape(-1, 128), high.reshape(-1, 64), _octets(scales.astype(np.int8)), octets)
    return np.concatenate(parts_of, axis=1)


def bf16(blocks: F32Array) -> U8Array:
    """Rounds numbers to bfloat16 and returns the bytes, in the form of the other types' functions. A block is one
    number."""
    return _octets(f32_to_bf16(blocks))


def f32(blocks: F32Array) -> U8Array:
    """Returns the float32 numbers as bytes, unchanged, in the form of the other types' functions."""
    return _octets(blocks)


TYPES: Mapping[str, WrittenBlock] = {
    each.name: each
    for each in (
        WrittenBlock("F32", 0, 1, 4, f32),
        WrittenBlock("BF16", 30, 1, 2, bf16),
        WrittenBlock("Q4_0", 2, 32, 18, q4_0),
        WrittenBlock("Q5_0", 6, 32, 22, q5_0),
        WrittenBlock("Q8_0", 8, 32, 34, q8_0),
        WrittenBlock("Q4_K", 12, 256, 144, q4_k),
        WrittenBlock("Q6_K", 14, 256, 210, q6_k),
    )
}
