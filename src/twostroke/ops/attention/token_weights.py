"""Probabilities as whole numbers: their sums have no rounding, so they are the same in any order, on any machine.

The likeliest token has weight 2^44. A token that is p times as likely as it has p * 2^44, rounded to an integer. A
token with p below 2^-45 has weight 0 and is never drawn.

Everything before the rounding is +, * and / on float64, each rounded once, as in IEEE 754. exp, log and fused
multiply-add are not used: they differ between processors and libraries. csrc/generic/machine/weigh.cpp makes the same
bits faster.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

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

FIXED = 1 << 16
"""Exponents and distances are added as multiples of 1 / FIXED."""
MOST_APART = float(1 << 16)
"""The largest distance from the largest logit. Logits further away count as this far away."""
_WEIGHT_HALF, _SPREAD_HALF = 22, 12

WeightArray = NDArray[np.uint64]
F64Array = NDArray[np.float64]


class NearScore(NamedTuple):
    """The numbers of a score that prefers tokens near the probability `aim`. The score is best - sharpness * d^2 / (1 +
    d). d is the distance from the aim, divided by `width`."""

    aim: float
    width: float
    best: float
    sharpness: float


class Weigh(Protocol):
    """Makes whole-number weights of tokens, and other numbers of a row that samplers need. logits: (V,), of which none
    is NaN and at least one is finite. The exponents of a row are the binary logarithms of each weight's ratio to the
    largest weight, before rounding; none is below LEAST_EXPONENT. A result may be valid until the next call only."""

    def __call__(self, logits: F32Array, temperature: float) -> WeightArray:
        """Returns the tokens' weights (V,)."""

    def exponent_sum(self, logits: F32Array, weights: WeightArray, temperature: float) -> int:
        """Returns the sum over all tokens of weight times exponent, where minus the exponent is rounded to a multiple
        of 1 / FIXED. The result is in such multiples, and not negative. weights: those of this row and temperature."""

    def nearness(self, logits: F32Array, temperature: float, mean: float) -> F64Array:
        """Returns minus the distance of each exponent from `mean`."""

    def spread(self, logits: F32Array) -> tuple[int, int]:
        """Returns the sums of all distances from the largest logit and of their squares. A distance is at most
        MOST_APART, and is rounded to a multiple of 1 / FIXED. The first sum is in units of 1 / FIXED, the second in
        units of its square. No logit may be -inf."""

    def near(self, weights: WeightArray, total: int, score: NearScore) -> tuple[F64Array, F32Array]:
        """Returns the tokens' probabilities and their scores. total: the sum of the weights."""


def exponent_scale(temperature: float) -> float:
    """Returns the factor that makes an exponent of 2 from a difference of logits."""
    return min(LOG2_E / temperature, MOST_SCALE) if temperature > 0 else MOST_SCALE


def exponents(logits: F32Array, peak: float, temperature: float) -> F64Array:
    """Returns the exponents of logits whose largest is `peak`; see Weigh."""
    found = logits.astype(np.float64)
    found -= peak
    with np.errstate(over="ignore"):
        found *= exponent_scale(temperature)
    return np.maximum(found, LEAST_EXPONENT, out=found)


class NumpyWeights:
    """Satisfies Weigh, by NumPy. It is the definition."""

    def __call__(self, logits: F32Array, temperature: float) -> WeightArray:
        exponent = exponents(logits, float(logits.max()), temperature)
        whole = np.rint(exponent)
        rest = exponent - whole
        power = np.full(len(logits), EXP2_COEFFICIENTS[-1])
        for coefficient in reversed(EXP2_COEFFICIENTS[:-1]):
            power = power * rest + coefficient
        weights: WeightArray = np.rint(np.ldexp(power, whole.astype(np.int32) + WEIGHT_BITS)).astype(np.uint64)
        return weights

    def exponent_sum(self, logits: F32Array, weights: WeightArray, temperature: float) -> int:
        scaled = exponents(logits, float(logits.max()), temperature)
        scaled *= -FIXED
        return products_of_halves(weights, np.rint(scaled, out=scaled).astype(np.uint64))

    def nearness(self, logits: F32Array, temperature: float, mean: float) -> F64Array:
        return -np.abs(exponents(logits, float(logits.max()), temperature) - mean)

    def spread(self, logits: F32Array) -> tuple[int, int]:
        apart = np.minimum(float(logits.max()) - logits.astype(np.float64), MOST_APART)
        fixed = np.rint(apart * FIXED).astype(np.uint64)
        high, low = fixed >> np.uint64(_SPREAD_HALF), fixed & np.uint64((1 << _SPREAD_HALF) - 1)
        sums = fixed.sum(), high @ high, high @ low, low @ low
        return spread_of(*map(int, sums))

    def near(self, weights: WeightArray, total: int, score: NearScore) -> tuple[F64Array, F32Array]:
        probabilities = weights.astype(np.float64) / float(total)
        apart = np.abs(probabilities - score.aim) / score.width
        return probabilities, (score.best - score.sharpness * apart * apart / (1.0 + apart)).astype(np.float32)


weigh = NumpyWeights()


def products_of_halves(weights: WeightArray, fixed: NDArray[np.uint64]) -> int:
    """Returns the sum of the products of weights and numbers below 2^22. The halves of the weights are summed by
    themselves, so that both sums have fewer than 64 bits."""
    high, low = weights >> np.uint64(_WEIGHT_HALF), weights & np.uint64((1 << _WEIGHT_HALF) - 1)
    return exponent_sum_of(int(high @ fixed), int(low @ fixed))


def exponent_sum_of(high: int, low: int) -> int:
    """Returns the sum over whole weights. high, low: the sums over the upper and the lower bits of the weights
    alone."""
    return (high << _WEIGHT_HALF) + low


def spread_of(total: int, high: int, mixed: int, low: int) -> tuple[int, int]:
    """Returns the sum of distances, which is `total`, and the sum of their squares. high, mixed, low: the sums of upper
    bits times upper bits, upper times lower, and lower times lower."""
    return total, (high << 2 * _SPREAD_HALF) + (mixed << _SPREAD_HALF + 1) + low


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
