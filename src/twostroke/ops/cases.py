"""The building blocks of ops' test calls (`Op.CASES`): weight formats, kinds of KV pages, and functions that make the
content of operands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.program.cases import Content, Filled, Sizes, grid, product
from twostroke.types.spec.formats import BF16, F32, KVKind, WeightFormat, WeightKind

__all__ = ["Filled", "Sizes", "grid"]

FLOATS = (F32, BF16)
INTEGERS = tuple(WeightFormat(kind, group) for kind in (WeightKind.INT8, WeightKind.INT4) for group in (64, 128, 256))
ROTATED = (
    WeightFormat(WeightKind.INT8, 256, 64),
    WeightFormat(WeightKind.INT4, 256, 64),
    WeightFormat(WeightKind.INT8, 64, 64),
    WeightFormat(WeightKind.SUPER6, 256, 64),
)
CODES = (*INTEGERS, *ROTATED)
"""The weight formats of whole numbers. A product with such a weight rounds its activations too."""
PAGES = ((1e-4, (KVKind.F32, KVKind.BF16)), (5e-3, (KVKind.INT8, KVKind.INT4)))
"""The tolerances of attention's tests, each with the kinds of KV pages that it is for. Float pages: kernels for matrix
registers round each softmax weight to within 2^-17 of its value. Integer pages: softmax weights are rounded to whole
numbers, and a difference in the last bit before may change such a number by 1."""


def times(factor: float) -> Content:
    """Returns content of Gaussian numbers, multiplied by `factor`."""
    return lambda random, shape, _: np.float32(factor) * random.standard_normal(shape, dtype=np.float32)


def around(centre: float) -> Content:
    """Returns a function that fills a test operand with Gaussian numbers whose mean is `centre`."""
    return lambda random, shape, _: np.float32(centre) + random.standard_normal(shape, dtype=np.float32)


def between(low: int, high: int) -> Content:
    """Returns a function that fills a test operand with random whole numbers from `low` to `high`, both included."""
    return lambda random, shape, _: random.integers(low, high + 1, shape)


def of(*numbers: float) -> Content:
    """Returns content that is exactly these numbers, as a float32 array."""
    return lambda _random, _shape, _sizes: np.array(numbers, np.float32)


def negative(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Makes decays: numbers below 0."""
    found: NDArray[Any] = -np.exp(random.standard_normal(shape, dtype=np.float32) / np.float32(4))
    return found


def wild(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Makes Gaussian rows. After the first come zeros, a tiny row, a large one, and three with an infinity, a negative
    infinity and NaN."""
    found = random.standard_normal(shape, dtype=np.float32)
    for row, change in zip(found[1:], (0, 1e-30, 1e4, np.inf, -np.inf, np.nan), strict=False):
        if np.isfinite(change):
            row *= np.float32(change)
        elif row.size:
            row.flat[random.integers(row.size)] = change
    return found


def with_nan(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Makes Gaussian rows, of which the second is tiny and the last has a NaN."""
    found = random.standard_normal(shape, dtype=np.float32)
    found[1:2] *= np.float32(1e-8)
    found[-1:, -1] = np.nan
    return found


def below(size: str) -> Content:
    """Returns content of whole numbers from 0 up to a size, which is excluded. 0 and the largest number are among
    them."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        most = product(size, sizes)
        found = random.integers(0, most, shape).astype(np.int32)
        found[:1], found[1:2] = most - 1, 0
        return found

    return made


def permutation(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Makes each whole number from 0 on once, in random order."""
    return random.permutation(shape[0]).astype(np.float32)


def routes(experts: str) -> Content:
    """Returns content for the operand `routes` of tests: in each row the weights of the chosen experts, then their
    numbers. Every row chooses the last expert. experts: the size that is the number of experts."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        rows, chosen = shape[0], shape[1] // 2
        found, count = np.empty(shape, np.float32), product(experts, sizes)
        found[:, :chosen] = np.abs(random.standard_normal((rows, chosen), dtype=np.float32))
        for row in range(rows):
            others = random.permutation(count - 1)[: chosen - 1]
            found[row, chosen:] = random.permutation(np.array([count - 1, *others]))
        return found

    return made


def rising(most: int) -> Content:
    """Returns content that has in each row 0 and some whole numbers below `most`, in rising order, then -1."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        found = np.full(shape, -1, np.float32)
        for place, row in enumerate(found):
            count = min(1 + 7 * place % len(row), most)
            row[:count] = np.sort(random.permutation(most)[:count])
            row[0] = 0
        return found

    return made


def with_sums(width: str) -> Content:
    """Returns content for states with three parts of `width` numbers each, of which the second is above 0. This fits
    states of (largest score, sum of weights, sum of values)."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        found = random.standard_normal((shape[0], shape[1] // (3 * product(width, sizes)), 3, product(width, sizes)))
        found[:, :, 1] = 1 + np.abs(found[:, :, 1])
        return found.reshape(shape).astype(np.float32)

    return made
