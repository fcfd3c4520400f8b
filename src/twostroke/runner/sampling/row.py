"""The tokens of one row of logits that may still be chosen, with the numbers that samplers need.

All numbers are functions of the logits. A token's weight is a whole number, proportional to its probability. Every
other number is made from weights by operations that each round once, so that it is the same on every machine (ADR 17).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.attention.token_weights import (
    FIXED,
    LN_2,
    WEIGHT_BITS,
    NearScore,
    Weigh,
    WeightArray,
    exponents,
    ln_of_sum,
)
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.choose import drawn, share_of
from twostroke.runner.sampling.random_draw import coin, draw

BEST_WEIGHT = 1 << WEIGHT_BITS


class SamplerRow:
    """The candidate tokens of one row of logits, on which samplers work. logits: the candidates' logits after the
    request's changes. temperature: the temperature with which weights are made. vocab_size: the number of tokens of the
    vocabulary, including those that may not be chosen.

    memory: what the chain's sampler with a memory has returned from `remember` after the token before; empty at the
    first token. scored: the candidates' probabilities before `score` replaced their logits.
    """

    def __init__(
        self, weigh: Weigh, logits: F32Array, seed: int, position: int, memory: tuple[float, ...] = ()
    ) -> None:
        self._weigh = weigh
        possible = logits > -np.inf
        self._ids: NDArray[np.int64] | None = None if possible.all() else np.flatnonzero(possible)
        self.logits: F32Array = logits if self._ids is None else logits[self._ids]
        self.temperature = 1.0
        self.vocab_size = len(logits)
        self.memory = memory
        self._seed, self._position = seed, position
        self._weights: WeightArray | None = None
        self.scored: NDArray[np.float64] = np.empty(0)

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of the candidate tokens, rising."""
        return np.arange(self.vocab_size) if self._ids is None else self._ids

    def token_id(self, place: int) -> int:
        """Returns the token id of the candidate with this index."""
        return place if self._ids is None else int(self._ids[place])

    @property
    def weights(self) -> WeightArray:
        """The whole-number weight of each candidate, proportional to its probability. The likeliest token has
        BEST_WEIGHT."""
        if self._weights is None:
            self._weights = self._weigh(self.logits, self.temperature)
        return self._weights

    @property
    def total(self) -> int:
        """The sum of all candidates' weights: a weight divided by this sum is a probability."""
        return int(self.weights.sum())

    def keep(self, places: NDArray[np.int64]) -> None:
        """Leaves out all candidates but those at these indices. places: rising indices."""
        self._take(lambda values: values[places])

    def leave_out(self, places: NDArray[np.int64]) -> None:
        """Leaves out the candidates at these indices. places: rising indices, of which there are few."""
        edges = [-1, *places.tolist(), len(self)]
        self._take(lambda values: np.concatenate([values[a + 1 : b] for a, b in itertools.pairwise(edges)]))

    def _take(self, some: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        self._ids, self.logits = some(self.ids), some(self.logits)
        if self._weights is not None:
            kept = some(self._weights)
            self._weights = kept if int(kept.max()) == BEST_WEIGHT else None

    def warm(self, temperature: float) -> None:
        """Sets the temperature with which the candidates' weights are made from now on."""
        if temperature != self.temperature:
            self.temperature, self._weights = temperature, None

    def score(self, near: NearScore) -> None:
        """Replaces the candidates' logits by scores, which are larger the nearer a candidate's probability is to
        near.aim. Stores these probabilities in `scored`, and sets the temperature to 1."""
        self.scored, scores = self._weigh.near(self.weights, self.total, near)
        self.logits, self.temperature, self._weights = scores, 1.0, None

    def at_least(self, share: float) -> NDArray[np.int64]:
        """Returns the indices of the candidates that have at least the probability `share`."""
        return np.flatnonzero(self.weights >= share_of(share, self.total))

    def exponents_at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns, for the candidates at these indices, log2 of their probability divided by the largest probability of
        the row."""
        return exponents(self.logits[places], float(self.logits.max()), self.temperature)

    def mean_exponent(self) -> float:
        """Returns the mean, weighted by probability, of the candidates' exponents: log2 of a probability divided by the
        largest one. It is computed from sums of whole numbers, which are the same on every machine."""
        found = self._weigh.exponent_sum(self.logits, self.weights, self.temperature)
        return -(found / (self.total * FIXED))

    def nearness(self) -> NDArray[np.float64]:
        """Returns a number for each candidate that is larger the nearer its surprise is to the expected surprise: minus
        the distance, in bits."""
        return self._weigh.nearness(self.logits, self.temperature, self.mean_exponent())

    def deviation(self) -> float:
        """Returns the standard deviation of the candidates' logits. It is computed from sums of whole numbers."""
        (total, squares), count = self._weigh.spread(self.logits), len(self)
        return math.sqrt(count * squares - total * total) / (count * FIXED)

    def entropy(self) -> float:
        """Returns the entropy of the candidates' probabilities, in nats."""
        return ln_of_sum(self.total) - LN_2 * self.mean_exponent()

    def surprise(self, place: int) -> float:
        """Returns minus the binary logarithm of the probability of the candidate at index `place`."""
        return (ln_of_sum(self.total) - ln_of_sum(int(self.weights[place]))) / LN_2

    def is_rare(self, probability: float) -> bool:
        """Returns True with the given probability. The result is a function of the request's seed and the position."""
        return coin(self._seed, self._position) < int(probability * (1 << 53))

    def draw(self) -> int:
        """Returns the index of a candidate, drawn by weight."""
        return drawn(self.weights, draw(self._seed, self._position))
