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
"""The least exponent; lower ones are replaced by it. It gives weight 0, as they would."""

EXP2_COEFFICIENTS = tuple(LN_2**n / math.factorial(n) for n in range(13))
"""The coefficients of the Taylor series of 2^x. For |x| <= 1/2 its error is below 2^-52."""
LN_TERMS = 12

FIXED = 1 << 16
"""Exponents, and the distances of logits from the largest one, are rounded to multiples of 1 / FIXED before they are
added."""
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
    """Makes weights from a row of logits: whole numbers that are proportional to the tokens' probabilities. Its other
    methods return what samplers need besides: entropy, spread and scores. logits: (V,), of which none is NaN and at
    least one is finite. A token's exponent is log2 of its probability divided by the largest one: 0 for the likeliest
    token, and never below LEAST_EXPONENT. A result may be valid until the next call only."""

    def __call__(self, logits: F32Array, temperature: float) -> WeightArray:
        """Returns the tokens' weights (V,)."""

    def exponent_sum(self, logits: F32Array, weights: WeightArray, temperature: float) -> int:
        """Returns the sum over all tokens of weight times -exponent (see Weigh), from which the entropy follows. Each
        -exponent is rounded to a multiple of 1 / FIXED, and the sum is in units of 1 / FIXED. weights: those of this
        row and temperature."""

    def nearness(self, logits: F32Array, temperature: float, mean: float) -> F64Array:
        """Returns -|exponent - mean| for each token: how close its log2-probability is to `mean`. Typical sampling
        keeps the tokens of the largest results. exponent: log2 of the probability, after division by the largest
        one."""

    def spread(self, logits: F32Array) -> tuple[int, int]:
        """Returns the sum of all tokens' distances from the largest logit, and the sum of the squares of these
        distances. A distance is at most MOST_APART, and is rounded to a multiple of 1 / FIXED. The first sum is in
        units of 1 / FIXED, the second in units of 1 / FIXED^2. No logit may be -inf."""

    def near(self, weights: WeightArray, total: int, score: NearScore) -> tuple[F64Array, F32Array]:
        """Returns each token's probability, and its score, which is larger the nearer the probability is to score.aim.
        Samplers that prefer tokens near a target probability call it. total: the sum of the weights."""


def exponent_scale(temperature: float) -> float:
    """Returns the factor by which a difference of logits becomes an exponent of 2: log2(e) / temperature, at most
    MOST_SCALE."""
    return min(LOG2_E / temperature, MOST_SCALE) if temperature > 0 else MOST_SCALE


def exponents(logits: F32Array, peak: float, temperature: float) -> F64Array:
    """Returns the exponent of each token: (logit - peak) / temperature * log2(e), at least LEAST_EXPONENT. peak: the
    largest logit."""
    found = logits.astype(np.float64)
    found -= peak
    with np.errstate(over="ignore"):
        found *= exponent_scale(temperature)
    return np.maximum(found, LEAST_EXPONENT, out=found)


class NumpyWeights:
    """The definition of Weigh in NumPy: whole-number weights of tokens from a row of logits. Satisfies Weigh."""

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
    """Returns the sum of weights * fixed, where all numbers of `fixed` are below 2^22. The upper and the lower bits of
    the weights are summed separately, so that both sums have fewer than 64 bits."""
    high, low = weights >> np.uint64(_WEIGHT_HALF), weights & np.uint64((1 << _WEIGHT_HALF) - 1)
    return exponent_sum_of(int(high @ fixed), int(low @ fixed))


def exponent_sum_of(high: int, low: int) -> int:
    """Returns the sum over all tokens of weight times -exponent, from which the entropy follows, in units of 1 / FIXED.
    high, low: the same sum with the upper and with the lower bits of each weight alone."""
    return (high << _WEIGHT_HALF) + low


def spread_of(total: int, high: int, mixed: int, low: int) -> tuple[int, int]:
    """Puts together the result of `Weigh.spread`: the sum of all distances d from the largest logit (`total`), and the
    sum of all d^2. Each d is split in upper and lower bits: high, mixed and low are the sums of upper * upper, upper *
    lower and lower * lower."""
    return total, (high << 2 * _SPREAD_HALF) + (mixed << _SPREAD_HALF + 1) + low


def ln_of_sum(total: int) -> float:
    """Returns the natural logarithm of total / 2^44, by the series of atanh. total: a sum of tokens' weights."""
    mantissa, exponent = math.frexp(total)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = mantissa * 2, exponent - 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, 0.0
    for term in range(LN_TERMS, -1, -1):
        series = series * square + 1 / (2 * term + 1)
    return (exponent - WEIGHT_BITS) * LN_2 + 2 * ratio * series
