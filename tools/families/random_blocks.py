"""Random bytes of ggml's block types that stand for numbers of a wanted size.

Codes are uniform. Scales are drawn from the upper half of their range. The factor of the scales is chosen so that the
numbers of a tensor have the wanted standard deviation and a mean near zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]

SCALE_MEAN = 47.5
"""The mean of the scales: whole numbers from 32 to 63."""


@dataclass(frozen=True, slots=True)
class RandomBlock:
    """number: the number of the type in a file. elements, num_bytes: the sizes of one block. draw: a function
    (generator, blocks, wanted standard deviation) -> (blocks, num_bytes) of random bytes."""

    number: int
    elements: int
    num_bytes: int
    draw: Callable[[np.random.Generator, int, float], Octets]


def _octets(generator: np.random.Generator, blocks: int, each: int) -> Octets:
    return np.frombuffer(generator.bytes(blocks * each), np.uint8).reshape(blocks, each)


def _half(value: float) -> Octets:
    return np.array([value], np.float16).view(np.uint8)


def _q4_0(generator: np.random.Generator, blocks: int, std: float) -> Octets:
    """Returns random blocks of Q4_0. Codes reach from -8 to 7. Every other scale is negative, so that the mean is near
    zero."""
    made = np.empty((blocks, 18), np.uint8)
    made[::2, :2], made[1::2, :2] = _half(std / 4.61), _half(-std / 4.61)
    made[:, 2:] = _octets(generator, blocks, 16)
    return made


def _q5_0(generator: np.random.Generator, blocks: int, std: float) -> Octets:
    made = np.empty((blocks, 22), np.uint8)
    made[:, :2] = _half(std / 9.23)
    made[:, 2:] = _octets(generator, blocks, 20)
    return made


def _q8_0(generator: np.random.Generator, blocks: int, std: float) -> Octets:
    made = np.empty((blocks, 34), np.uint8)
    made[:, :2] = _half(std / 73.9)
    made[:, 2:] = _octets(generator, blocks, 32)
    return made


def _q4_k(generator: np.random.Generator, blocks: int, std: float) -> Octets:
    """Returns random blocks of Q4_K. Each minimum is equal to its scale, and the factor of the minima is 7.5 times that
    of the scales, so that the numbers lie around zero."""
    made = np.empty((blocks, 144), np.uint8)
    factor = std / (4.61 * SCALE_MEAN)
    made[:, :2], made[:, 2:4] = _half(factor), _half(7.5 * factor)
    scales = _octets(generator, blocks, 8) & np.uint8(31) | np.uint8(32)
    first, last = scales[:, :4], scales[:, 4:]
    made[:, 4:8] = made[:, 8:12] = first | (last >> 4) << 6
    made[:, 12:16] = (last & 15) | (last & 15) << 4
    made[:, 16:] = _octets(generator, blocks, 128)
    return made


def _q6_k(generator: np.random.Generator, blocks: int, std: float) -> Octets:
    made = np.empty((blocks, 210), np.uint8)
    made[:, :192] = _octets(generator, blocks, 192)
    made[:, 192:208] = _octets(generator, blocks, 16) & np.uint8(31) | np.uint8(32)
    made[:, 208:] = _half(std / (18.5 * SCALE_MEAN))
    return made


def _mxfp4(generator: np.random.Generator, blocks: int, std: float) -> Octets:
    made = np.empty((blocks, 17), np.uint8)
    made[:, 0] = 127 + round(float(np.log2(std / 2.93)))
    made[:, 1:] = _octets(generator, blocks, 16)
    return made


BLOCKS: Mapping[str, RandomBlock] = {
    "Q4_0": RandomBlock(2, 32, 18, _q4_0),
    "Q5_0": RandomBlock(6, 32, 22, _q5_0),
    "Q8_0": RandomBlock(8, 32, 34, _q8_0),
    "Q4_K": RandomBlock(12, 256, 144, _q4_k),
    "Q6_K": RandomBlock(14, 256, 210, _q6_k),
    "MXFP4": RandomBlock(39, 32, 17, _mxfp4),
}
