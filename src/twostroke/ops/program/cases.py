"""The calls that an op is tested with, as sizes and numbers: `tools/gpu/op_cases.py` makes operands of them.

    CASES = (grid(3e-6, T=(1, 19), G=3, W=(1, 15), D="G W", weight=("W", "D"), groups="G"),)

Each name is that of an axis in `SHAPES` or of an operand. Its value is one choice, or a tuple of choices; every
combination of choices is a case. A choice for an axis is its size. Several words are multiplied: "2 F" is twice the
number of F. A choice for an operand that is a number is this number. An axis `*` in `SHAPES` may have any size. For an
operand with such an axis, a choice is the size, such as "2 F", or a `Filled`: the size and a function that makes the
content. For other operands with a shape, a choice is such a function. Without a function the content is Gaussian. None
leaves an operand out.

Five more names exist. `bank` is how many matrices each weight has, `biased` whether they have biases. `formats` has the
formats of weights, and `kinds` the kinds of pages; without these names all of them are tested. `steps` has (position
after the last row, rows) of each sequence of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

Sizes: TypeAlias = Mapping[str, Any]
Content: TypeAlias = Callable[[Any, tuple[int, ...], Sizes], Any]
"""A function content(random, shape, sizes) that makes the numbers of an operand. random: a generator of NumPy."""


class CaseGrid(Struct, frozen=True):
    """The calls of an op that tests compare with its reference. tolerance: the largest difference from the reference's
    result, relative to its largest number; 0 means that the bits must be the same."""

    tolerance: float
    choices: Mapping[str, tuple[Any, ...]]


def grid(tolerance: float = 0.0, **choices: object) -> CaseGrid:
    """Makes the test calls of an op with every combination of the choices."""
    return CaseGrid(tolerance, {name: each if isinstance(each, tuple) else (each,) for name, each in choices.items()})


class Filled(Struct, frozen=True):
    """A choice for an operand that has an axis `*` (any size) in the op's `SHAPES`. size: the size of this axis in a
    test. content: the function that makes the operand's numbers."""

    size: str
    content: Content


def product(size: object, sizes: Sizes) -> int:
    """Returns the number that a text such as "2 F" stands for. A number stands for itself."""
    if not isinstance(size, str):
        return int(size)  # type: ignore[call-overload, no-any-return]
    found = 1
    for word in size.split():
        found *= int(word) if word.isdecimal() else product(sizes[word], sizes)
    return found
