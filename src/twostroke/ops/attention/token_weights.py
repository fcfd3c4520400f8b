"""Probabilities as whole numbers: their sums have no rounding, so they are the same in any order, on any machine.

The likeliest token has weight 2^44. A token that is p times as likely as it has p * 2^44, rounded to an integer. A
token with p below 2^-45 has weight 0 and is never drawn.

Everything before the rounding is +, * and / on float64, each rounded once, as in IEEE 754. exp, log and fused
multiply-add are not used: they differ between processors and libraries. csrc/generic/machine/weigh.cpp makes the same
bits faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array

WEIGHT_BITS = 44
"""The number of bits of the likeliest token's weight. With 44, a vocabulary of 2^19 tokens keeps the sum of weights
below 2^63."""

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
MOST_SCALE = 1e300
LEAST_EXPONENT = -60.0
"""The least exponent. Lower ones are replaced by it; all of them give weight 0."""

EXP2_COEFFICIENTS = tuple(LN_2**n / math.factorial(n) for n in range(13))
"""The coefficients of the Taylor series of 2^x. For |x| <= 1/2 its error is below 2^-52."""
LN_TERMS = 12

WeightArray = NDArray[np.uint64]
Weigh = Callable[[F32Array, float], WeightArray]
"""A function weigh(logits, temperature) that returns the tokens' weights (V,). logits: (V,). temperature: above 0."""


def exponent_scale(temperature: float) -> float:
    """Returns the factor that makes an exponent of 2 from a difference of logits."""
    return min(LOG2_E / temperature, MOST_SCALE) if temperature > 0 else MOST_SCALE


def weigh(logits: F32Array, temperature: float) -> WeightArray:
    """Satisfies Weigh, by NumPy. At least one logit must be finite, and none may be NaN."""
    with np.errstate(over="ignore"):
        exponent = (logits.astype(np.float64) - float(logits.max())) * exponent_scale(temperature)
    exponent = np.maximum(exponent, LEAST_EXPONENT)
    whole = np.rint(exponent)
    rest = exponent - whole
    power = np.full(len(logits), EXP2_COEFFICIENTS[-1])
    for coefficient in reversed(EXP2_COEFFICIENTS[:-1]):
        power = power * rest + coefficient
    weights: WeightArray = np.rint(np.ldexp(power, whole.astype(np.int32) + WEIGHT_BITS)).astype(np.uint64)
    return weights


def ln_of_sum(total: int) -> float:
    """Returns the natural logarithm of total / 2^44, by the series of atanh. total: a sum of weights."""
    mantissa, exponent = math.frexp(total)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = mantissa * 2, exponent - 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, 0.0
    for term in range(LN_TERMS, -1, -1):
        series = series * square + 1 / (2 * term + 1)
    return (exponent - WEIGHT_BITS) * LN_2 + 2 * ratio * series
