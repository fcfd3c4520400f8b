"""Mirostat (Basu et al. 2021), in both versions: the surprise of the output is held near a target."""

from __future__ import annotations

import itertools
import operator
from functools import cache

import numpy as np
from msgspec import Struct

from twostroke.ops.attention.token_weights import LN_2
from twostroke.runner.sampling.choose import largest
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling.sampler_fields import MIROSTAT_1, MIROSTAT_2
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.portable import ln, powers

_MOST_SURPRISE = 60.0
"""A limit of this many bits of surprise, or more, leaves no token out, because a token with a higher surprise has the
weight 0 anyway."""
ZIPF_TOKENS = 100
"""How many tokens' probabilities the first version looks at."""


class Mirostat(Struct, frozen=True):
    """Holds the surprise of the output near a target. target: the wanted surprise, in bits. rate: how fast the limit
    follows. The limit of surprise is the sampler's memory.

    The limit begins at twice the target. It moves by the rate times (target - surprise of the chosen token). Each
    version leaves out tokens in its own way. Satisfies `RememberingSampler`.
    """

    target: float
    rate: float

    @staticmethod
    def of(params: SamplingParams) -> Mirostat | None:
        """Returns the sampler; None where it is off."""
        made = {MIROSTAT_1: ZipfMirostat, MIROSTAT_2: Mirostat}.get(params.mirostat)
        return None if made is None else made(params.mirostat_tau, params.mirostat_eta)

    def apply(self, row: SamplerRow) -> None:
        """Leaves out tokens whose surprise, in bits, is above the present limit, but never the likeliest token."""
        limit = self._limit(row)
        if limit >= _MOST_SURPRISE:
            return
        kept = row.at_least(powers(2.0, [-limit])[0]) if limit > 0.0 else np.empty(0, np.int64)
        row.keep(np.union1d(kept, [row.logits.argmax()]))

    def remember(self, row: SamplerRow, place: int) -> tuple[float, ...]:
        return (self._limit(row) - self.rate * (row.surprise(place) - self.target),)

    def _limit(self, row: SamplerRow) -> float:
        return row.memory[0] if row.memory else 2.0 * self.target


class ZipfMirostat(Mirostat, frozen=True):
    """The first version. It assumes that the probabilities of the likeliest tokens follow Zipf's law. From the law's
    exponent it computes how many tokens have a mean surprise near the limit."""

    def apply(self, row: SamplerRow) -> None:
        size = len(row)
        if size < 2:
            return
        best = largest(row.logits, min(size, ZIPF_TOKENS))
        binary, steps = row.exponents_at(best).tolist(), _steps()[: len(best) - 1]
        falls = [(one - other) * LN_2 for one, other in itertools.pairwise(binary)]
        exponent = sum(map(operator.mul, steps, falls)) / sum(map(operator.mul, steps, steps))
        count = self._count(exponent, self._limit(row), row.vocab_size, size)
        if count < size:
            row.keep(np.sort(largest(row.logits, count)))

    def _count(self, exponent: float, limit: float, vocab_size: int, most: int) -> int:
        """Returns how many of the likeliest tokens stay (k), at least one and at most `most`. exponent: the exponent of
        Zipf's law, as estimated for this row. limit: the present limit of surprise, in bits."""
        excess = exponent - 1.0
        share = 1.0 - powers(float(vocab_size), [-excess])[0]
        scale = excess / share if share else 1.0 / ln(float(vocab_size))
        log = ln(scale) + limit * LN_2
        if log <= 0.0:
            return 1
        if log >= exponent * ln(float(most)):
            return most
        return max(1, min(most, int(powers(2.0, [log / (exponent * LN_2)])[0])))


@cache
def _steps() -> tuple[float, ...]:
    """Returns by how much the logarithm of the frequency falls from each place to the next under Zipf's law with the
    exponent 1."""
    return tuple(ln((place + 2) / (place + 1)) for place in range(ZIPF_TOKENS - 1))
