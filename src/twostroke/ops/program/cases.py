"""The calls that an op is tested with, as sizes and numbers: `tools/gpu/op_cases.py` makes operands of them.

    CASES = (grid(3e-6, T=(1, 19), G=3, W=(1, 15), D="G W", weight=("W", "D"), groups="G"),)

A name stands for an axis of `SHAPES`, for an operand that is a number, or for the axis `*` of an operand. Each value is
one choice, or a tuple of choices, of which every combination is a case. Words are a product: "2 F" is twice the number
of F. A function makes the content of an operand; without one it is Gaussian. `Filled` is a product with its function.
None leaves an operand out.

Four more names exist. `bank` is how many matrices each weight has. `formats` are those of weights, `kinds` those of
pages; without these names all are meant. `steps` has (position after the last row, rows) of each sequence of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.types.spec.formats import BF16, F32, WeightFormat, WeightKind

FLOATS = (F32, BF16)
INTEGERS = (
    WeightFormat(WeightKind.INT8, 64),
    WeightFormat(WeightKind.INT4, 128),
    WeightFormat(WeightKind.INT8, 256, 64),
    WeightFormat(WeightKind.SUPER6, 256, 64),
)
Sizes: TypeAlias = Mapping[str, Any]
Content: TypeAlias = Callable[[np.random.Generator, tuple[int, ...], Sizes], NDArray[Any]]
"""content(random, shape, sizes): the numbers of an operand."""


class Grid(Struct, frozen=True):
    """Calls of an op. tolerance: how far results may lie from the reference's, relative to their largest; 0 for the
    same bits."""

    tolerance: float
    choices: Mapping[str, tuple[Any, ...]]


def grid(tolerance: float = 0.0, **choices: object) -> Grid:
    """The calls with every combination of the choices."""
    return Grid(tolerance, {name: each if isinstance(each, tuple) else (each,) for name, each in choices.items()})


class Filled(Struct, frozen=True):
    """The axis `*` of an operand, and its content."""

    size: str
    content: Content


def product(size: object, sizes: Sizes) -> int:
    """The number that a text such as "2 F" stands for; a number stands for itself."""
    if not isinstance(size, str):
        return int(size)  # type: ignore[call-overload, no-any-return]
    found = 1
    for word in size.split():
        found *= int(word) if word.isdecimal() else product(sizes[word], sizes)
    return found


def times(factor: float) -> Content:
    """Gaussian numbers times a factor."""
    return lambda random, shape, _: np.float32(factor) * random.standard_normal(shape, dtype=np.float32)


def around(centre: float) -> Content:
    """Gaussian numbers around a number."""
    return lambda random, shape, _: np.float32(centre) + random.standard_normal(shape, dtype=np.float32)


def between(low: int, high: int) -> Content:
    """Whole numbers, both ends among them."""
    return lambda random, shape, _: random.integers(low, high + 1, shape)


def of(*numbers: float) -> Content:
    """These numbers."""
    return lambda _random, _shape, _sizes: np.array(numbers, np.float32)


def negative(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Decays: numbers below 0."""
    return -np.exp(random.standard_normal(shape, dtype=np.float32) / np.float32(4))


def wild(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Gaussian rows, then a tiny one, a large one, and three with an infinity, its opposite and NaN."""
    found = random.standard_normal(shape, dtype=np.float32)
    for row, change in zip(found[1:], (1e-30, 1e4, np.inf, -np.inf, np.nan), strict=False):
        if np.isfinite(change):
            row *= np.float32(change)
        elif row.size:
            row.flat[random.integers(row.size)] = change
    return found


def below(size: str) -> Content:
    """Whole numbers from 0 up to a size, the smallest and the largest among them."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        most = product(size, sizes)
        found = random.integers(0, most, shape).astype(np.int32)
        found[:1], found[1:2] = most - 1, 0
        return found

    return made


def permutation(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Each number from 0 on once."""
    return random.permutation(shape[0]).astype(np.float32)


def routes(experts: str) -> Content:
    """Weights, then different numbers of experts in each row; every row has the last expert among them."""

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
    """In each row 0 and some numbers below `most` in rising order, then -1."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        found = np.full(shape, -1, np.float32)
        for place, row in enumerate(found):
            count = min(1 + 7 * place % len(row), most)
            row[:count] = np.sort(random.permutation(most)[:count])
            row[0] = 0
        return found

    return made


def with_sums(width: str) -> Content:
    """States that are (largest score, sum of weights, sum of values) or begin with a value: the second third, of
    `width` numbers in each, is above 0."""

    def made(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
        found = random.standard_normal((shape[0], shape[1] // (3 * product(width, sizes)), 3, product(width, sizes)))
        found[:, :, 1] = 1 + np.abs(found[:, :, 1])
        return found.reshape(shape).astype(np.float32)

    return made
