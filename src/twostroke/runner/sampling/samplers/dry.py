"""DRY, "don't repeat yourself": makes a token less likely if it would continue a repetition, the more the longer the
repetition is.

A token continues a repetition of n tokens if the last n tokens of the sequence also stand earlier, just before this
token. The longest such n counts. It depends on the tokens alone. So DRY changes logits as penalties do, and may also
change which token is the most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.samplers.runs import LEAST_TOKENS, RUNS, runs_at_end
from twostroke.types.plan import PlannedSequence
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.portable import ln

_MOST_LOGIT = 88.7228391
"""Nearly the natural logarithm of the largest 32-bit float. It keeps penalties finite."""

_LENGTH_BITS = 32

Ids = NDArray[np.int32]
Lowered = tuple[NDArray[np.int64], F32Array]


class Dry(Struct, frozen=True):
    """The sampler DRY. A token that continues a repetition of n tokens gets a logit that is lower by multiplier * base
    ^ (n - allowed); shorter repetitions than `allowed` are free. last: the number of known tokens that the sampler
    reads, counted from the end; -1 means all. breakers: the tokens at which a repetition stops."""

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

    def lowered_in(self, sequence: PlannedSequence) -> Lowered:
        """Returns the tokens that DRY makes less likely after the known tokens of a sequence, and by how much. If DRY
        reads more than LEAST_TOKENS tokens, the lengths of the repetitions are stored and only updated at the next
        token."""
        known = sequence.known_token_ids
        window = self._window(known)
        if window <= LEAST_TOKENS:
            return self.lowered(known)
        ids, lengths = longest_of_each(*RUNS.of(sequence, self.breakers).following(window, self.allowed))
        kept = [place for place, token in enumerate(ids.tolist()) if token not in self.breakers]
        return self._penalties(ids[kept], lengths[kept])

    def lowered(self, known: Sequence[int]) -> Lowered:
        """Returns the tokens that DRY makes less likely after these known tokens, each once by rising id, and the
        numbers that are subtracted from their logits."""
        longest = [each for each in sorted(self.repetitions(known).items()) if each[1] >= self.allowed]
        return self._penalties(*np.array(longest, np.int32).reshape(-1, 2).T)

    def repetitions(self, known: Sequence[int]) -> dict[int, int]:
        """Returns, for each token that would continue a repetition, the length of that repetition; see the module. The
        longest one counts."""
        tokens = list(known[len(known) - self._window(known) :])
        found = dict[int, int]()
        for place, length in runs_at_end(tokens, self.breakers).items():
            follows = tokens[place + 1]
            if length > found.get(follows, 0) and follows not in self.breakers:
                found[follows] = length
        return found

    def _window(self, known: Sequence[int]) -> int:
        return len(known) if self.last < 0 else min(self.last, len(known))

    def _penalties(self, ids: Ids, lengths: Ids) -> Lowered:
        by = {each: _penalty(self.multiplier, self.base, each - self.allowed) for each in set(lengths.tolist())}
        return ids.astype(np.int64), np.array([by[each] for each in lengths.tolist()], np.float32)


def longest_of_each(ids: Ids, lengths: Ids) -> tuple[Ids, Ids]:
    """Returns each id once, rising, with the largest of its lengths."""
    pairs = np.sort(ids.astype(np.int64) << _LENGTH_BITS | lengths, kind="stable")
    found = pairs >> _LENGTH_BITS
    last = np.append(found[1:] != found[:-1], True)[: len(ids)]
    return found[last].astype(np.int32), (pairs[last] & (1 << _LENGTH_BITS) - 1).astype(np.int32)


@cache
def _most_exponent(multiplier: float, base: float) -> int:
    return int((_MOST_LOGIT - ln(max(1.0, multiplier))) / ln(base))


def _penalty(multiplier: float, base: float, exponent: int) -> float:
    """Returns multiplier * base ^ exponent. The power is computed by multiplications alone, so that it is the same on
    every machine."""
    if base > 1.0:
        exponent = min(exponent, _most_exponent(multiplier, base))
    power, square = 1.0, base
    while exponent:
        if exponent & 1:
            power *= square
        exponent >>= 1
        square = min(square * square, 1e300)
    return multiplier * power
