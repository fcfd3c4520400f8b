"""The tokens of one row that may still be chosen, with the numbers that samplers need.

All numbers are functions of the logits. Weights are whole numbers (ADR 17). Every other number is made from them by
steps that are rounded once, so that it is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.attention.token_weights import (
    LN_2,
    WEIGHT_BITS,
    Weigh,
    WeightArray,
    exponent_scale,
    ln_of_sum,
)
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.choose import drawn, share_of
from twostroke.runner.sampling.random_draw import coin, draw

BEST_WEIGHT = 1 << WEIGHT_BITS
_FIXED = 1 << 16
"""The scale of exponents in sums: they are added as multiples of 1 / 2^16."""
_LEAST_EXPONENT = -60.0
_HALF = np.uint64(22)


class SamplerRow:
    """ids: the token ids, rising. logits: their logits after the request's changes. temperature: the temperature with
    which weights are made. vocab_size: the number of tokens of the vocabulary, including those that may not be chosen.

    memory: the result of the samplers' `remember` after the token before; empty at the first token. scored: see
    `score`.
    """

    def __init__(
        self, weigh: Weigh, logits: F32Array, seed: int, position: int, memory: tuple[float, ...] = ()
    ) -> None:
        self._weigh = weigh
        self.ids: NDArray[np.int64] = np.flatnonzero(logits > -np.inf)
        self.logits: F32Array = logits if len(self.ids) == len(logits) else logits[self.ids]
        self.temperature = 1.0
        self.vocab_size = len(logits)
        self.memory = memory
        self._seed, self._position = seed, position
        self._weights: WeightArray | None = None
        self.scored: NDArray[np.float64] = np.empty(0)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def weights(self) -> WeightArray:
        """The weight of each token. The likeliest token has BEST_WEIGHT."""
        if self._weights is None:
            self._weights = self._weigh(self.logits, self.temperature)
        return self._weights

    @property
    def total(self) -> int:
        """The sum of the weights."""
        return int(self.weights.sum())

    def keep(self, places: NDArray[np.bool_] | NDArray[np.int64]) -> None:
        """Leaves out all tokens but those at these places. places: a mask, or rising indices."""
        self.ids, self.logits = self.ids[places], self.logits[places]
        if self._weights is not None:
            kept = self._weights[places]
            self._weights = kept if int(kept.max()) == BEST_WEIGHT else None

    def warm(self, temperature: float) -> None:
        """Sets the temperature with which weights are made from now on."""
        if temperature != self.temperature:
            self.temperature, self._weights = temperature, None

    def score(self, probabilities: NDArray[np.float64], logits: F32Array) -> None:
        """Sets other logits for the same tokens, at temperature 1. probabilities: the tokens' probabilities until now.
        """
        self.scored = probabilities
        self.logits, self.temperature, self._weights = logits, 1.0, None

    def at_least(self, share: float) -> NDArray[np.bool_]:
        """Returns which tokens have at least the probability `share`."""
        found: NDArray[np.bool_] = self.weights >= share_of(share, self.total)
        return found

    def exponents(self) -> NDArray[np.float64]:
        """Returns the binary logarithm of each weight's ratio to the largest weight, before it is rounded."""
        apart = self.logits.astype(np.float64) - float(self.logits.max())
        with np.errstate(over="ignore"):
            return np.maximum(apart * exponent_scale(self.temperature), _LEAST_EXPONENT)

    def mean_exponent(self, exponents: NDArray[np.float64]) -> float:
        """Returns the mean of the exponents by weight. Its sum is a sum of whole numbers."""
        fixed = np.rint(exponents * -_FIXED).astype(np.uint64)
        high, low = self.weights >> _HALF, self.weights & np.uint64((1 << 22) - 1)
        total = (int((high * fixed).sum()) << 22) + int((low * fixed).sum())
        return -(total / (self.total * _FIXED))

    def entropy(self) -> float:
        """Returns the entropy of the row, in nats."""
        return ln_of_sum(self.total) - LN_2 * self.mean_exponent(self.exponents())

    def surprise(self, place: int) -> float:
        """Returns minus the binary logarithm of the probability of the token at `place`."""
        return (ln_of_sum(self.total) - ln_of_sum(int(self.weights[place]))) / LN_2

    def is_rare(self, probability: float) -> bool:
        """Throws one coin for this row: returns True with the given probability."""
        return coin(self._seed, self._position) < int(probability * (1 << 53))

    def draw(self) -> int:
        """Returns the place of a token, drawn by weight."""
        return drawn(self.weights, draw(self._seed, self._position))
