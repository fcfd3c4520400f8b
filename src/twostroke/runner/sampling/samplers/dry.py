"""DRY, "don't repeat yourself": makes a token less likely if it would continue a repetition, the more the longer the
repetition is.

The repetition is the longest one with which the known tokens end and which stood before the same token earlier. It is a
function of the tokens alone. So it changes logits as penalties do, and may also change which token is the most likely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array
from twostroke.types.sampling_params import SamplingParams
from twostroke.types.spec.portable import ln

_MOST_LOGIT = 88.7228391
"""Nearly the natural logarithm of the largest 32-bit float. It keeps penalties finite."""


_MOST_STEPS = 2
"""Steps for each token, after which the repetitions are found all at once."""


def same_beginnings(tokens: Sequence[int]) -> list[int]:
    """Returns for each place how many tokens from there on are the same as those from the beginning on. (The Z
    algorithm; D. Gusfield, Algorithms on Strings, Trees, and Sequences, 1997, section 1.4.)"""
    size, left, right = len(tokens), 0, 0
    found = [size] * size
    for place in range(1, size):
        length = min(right - place, found[place - left]) if place < right else 0
        while place + length < size and tokens[length] == tokens[place + length]:
            length += 1
        if place + length > right:
            left, right = place, place + length
        found[place] = length
    return found


class Dry(Struct, frozen=True):
    """multiplier, base, allowed: see `Dry._penalty`. last: how many of the known tokens are looked at; -1 means all.
    breakers: tokens at which a repetition stops."""

    multiplier: float
    base: float
    allowed: int
    last: int
    breakers: frozenset[int]

    @classmethod
    def of(cls, params: SamplingParams) -> Dry | None:
        """Returns the sampler; None where it is off."""
        if not params.repeats_cost:
            return None
        multiplier, base, allowed = params.dry_multiplier, params.dry_base, params.dry_allowed_length
        return cls(multiplier, base, allowed, params.dry_penalty_last_n, params.dry_breaker_ids)

    def lowered(self, known: Sequence[int]) -> tuple[NDArray[np.int64], F32Array]:
        """Returns token ids, each once by rising id, and the numbers that are subtracted from their logits."""
        longest = sorted(self.repetitions(known).items())
        found = [(token, self._penalty(length)) for token, length in longest if length >= self.allowed]
        return np.array([token for token, _ in found], np.int64), np.array([by for _, by in found], np.float32)

    def repetitions(self, known: Sequence[int]) -> dict[int, int]:
        """Returns for each token that continued an earlier copy of the end of the known tokens: the length of the
        longest repetition."""
        size = len(known) if self.last < 0 else min(self.last, len(known))
        tokens = list(known[len(known) - size :])
        if size < 2 or tokens[-1] in self.breakers:
            return {}
        last, end, found, place, steps = tokens[-1], size - 1, dict[int, int](), -1, 0
        while steps < _MOST_STEPS * size:
            try:
                place = tokens.index(last, place + 1, end)
            except ValueError:
                return found
            steps += (length := self._length(tokens, place))
            self._note(found, tokens[place + 1], length)
        return self._all_at_once(tokens)

    def _note(self, found: dict[int, int], follows: int, length: int) -> None:
        if follows not in self.breakers:
            found[follows] = max(found.get(follows, 0), length)

    def _length(self, tokens: list[int], place: int) -> int:
        """Returns how many tokens up to `place` are the same as those at the end. At least one is."""
        length, end = 1, len(tokens) - 1
        while length <= place:
            token = tokens[end - length]
            if tokens[place - length] != token or token in self.breakers:
                break
            length += 1
        return length

    def _all_at_once(self, tokens: list[int]) -> dict[int, int]:
        """Returns the repetitions in time that grows with the number of tokens alone. A text that repeats itself all
        along, such as one token many times, would otherwise take the square of it."""
        backwards, found = tokens[::-1], dict[int, int]()
        most = next((place for place, token in enumerate(backwards) if token in self.breakers), len(tokens))
        for place, length in enumerate(same_beginnings(backwards)):
            if place and length:
                self._note(found, backwards[place - 1], min(length, most))
        return found

    def _penalty(self, length: int) -> float:
        """Returns multiplier * base ^ (length - allowed), computed only by products."""
        exponent = length - self.allowed
        if self.base > 1.0:
            exponent = min(exponent, int((_MOST_LOGIT - ln(max(1.0, self.multiplier))) / ln(self.base)))
        power, square = 1.0, self.base
        while exponent:
            if exponent & 1:
                power *= square
            exponent >>= 1
            square = min(square * square, 1e300)
        return self.multiplier * power
