"""Logarithms and powers with the same bits on every processor and with every C library.

The C library chooses an implementation that suits the processor, and implementations may differ in the last bit of a
result. Decimal arithmetic gives the same bits everywhere.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable

_DIGITS = decimal.Context(prec=30)


def ln(value: float) -> float:
    """Returns the natural logarithm of a number above 0."""
    return float(_DIGITS.ln(decimal.Decimal(value)))


def powers(base: float, exponents: Iterable[float]) -> list[float]:
    """Returns base ** exponent for each exponent; `base` must be above 0."""
    logarithm = _DIGITS.ln(decimal.Decimal(base))
    return [float(_DIGITS.exp(_DIGITS.multiply(decimal.Decimal(float(each)), logarithm))) for each in exponents]
