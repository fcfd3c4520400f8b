"""Simple quantizers of the K types and of Q1_0, which the `gguf` package does not write. They take the nearest values,
without a search."""

from __future__ import annotations

import numpy as np


def _half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16)


def _codes(blocks: np.ndarray, steps: np.ndarray, low: int, high: int) -> np.ndarray:
    inverse = np.divide(1, steps, out=np.zeros_like(steps), where=steps != 0)
    return np.clip(np.rint(blocks * inverse), low, high).astype(np.int32)


def q1_0(values: np.ndarray) -> np.ndarray:
    """(rows, columns) float32 -> (rows, bytes): signs, and one scale for 128 columns."""
    blocks = values.reshape(-1, 128)
    d = _half(np.abs(blocks).mean(axis=1)).view(np.uint8).reshape(-1, 2)
    return np.concatenate((d, np.packbits(blocks >= 0, axis=1, bitorder="little")), axis=1).reshape(len(values), -1)


def q6_k(values: np.ndarray) -> np.ndarray:
    """(rows, columns) float32 -> (rows, bytes)."""
    blocks = values.reshape(-1, 16, 16)
    wanted = np.abs(blocks).max(axis=2) / 31
    d = _half(wanted.max(axis=1) / 127)
    scales = _codes(wanted, d.astype(np.float32)[:, None] + np.zeros_like(wanted), 0, 127)
    steps = d.astype(np.float32)[:, None] * scales
    q = (_codes(blocks, steps[:, :, None] + np.zeros_like(blocks), -32, 31) + 32).reshape(-1, 2, 4, 32).astype(np.uint8)
    low = (q[:, :, :2] & 15) | ((q[:, :, 2:] & 15) << 4)
    high = (q[:, :, 0] >> 4) | (q[:, :, 1] >> 4 << 2) | (q[:, :, 2] >> 4 << 4) | (q[:, :, 3] >> 4 << 6)
    parts = (
        low.reshape(-1, 128),
        high.reshape(-1, 64),
        scales.astype(np.int8).view(np.uint8),
        d.view(np.uint8).reshape(-1, 2),
    )
    return np.concatenate(parts, axis=1).reshape(len(values), -1)


def _six_bits(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    packed = np.zeros((len(scales), 12), np.uint8)
    packed[:, :4] = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    packed[:, 4:8] = minima[:, :4] | (minima[:, 4:] >> 4 << 6)
    packed[:, 8:] = (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4)
    return packed


def _with_minimum(values: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
    blocks = values.reshape(-1, 8, 32)
    least = np.minimum(blocks.min(axis=2), 0)
    wanted = (blocks.max(axis=2) - least) / most
    d, dmin = _half(wanted.max(axis=1) / 63), _half(-least.min(axis=1) / 63)
    scales = _codes(wanted, d.astype(np.float32)[:, None] + np.zeros_like(wanted), 0, 63).astype(np.uint8)
    minima = _codes(-least, dmin.astype(np.float32)[:, None] + np.zeros_like(least), 0, 63).astype(np.uint8)
    steps = d.astype(np.float32)[:, None] * scales
    offsets = dmin.astype(np.float32)[:, None] * minima
    q = _codes(blocks + offsets[:, :, None], steps[:, :, None] + np.zeros_like(blocks), 0, most).astype(np.uint8)
    head = (d.view(np.uint8).reshape(-1, 2), dmin.view(np.uint8).reshape(-1, 2), _six_bits(scales, minima))
    return (*head, q.reshape(-1, 4, 2, 32))


def q4_k(values: np.ndarray) -> np.ndarray:
    """(rows, columns) float32 -> (rows, bytes)."""
    d, dmin, packed, q = _with_minimum(values, 15)
    return np.concatenate((d, dmin, packed, (q[:, :, 0] | (q[:, :, 1] << 4)).reshape(-1, 128)), axis=1).reshape(
        len(values), -1
    )


def q5_k(values: np.ndarray) -> np.ndarray:
    """(rows, columns) float32 -> (rows, bytes)."""
    d, dmin, packed, q = _with_minimum(values, 31)
    low = (q[:, :, 0] & 15) | ((q[:, :, 1] & 15) << 4)
    high = np.zeros((len(q), 32), np.uint8)
    for bit in range(8):
        high |= (q[:, bit // 2, bit % 2] >> 4 & 1) << bit
    return np.concatenate((d, dmin, packed, high, low.reshape(-1, 128)), axis=1).reshape(len(values), -1)
