"""Adaptive-p (llama.cpp#17927): tokens near a target probability are preferred, and the target corrects itself."""

from __future__ import annotations

from msgspec import Struct

from twostroke.ops.attention.token_weights import NearScore
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling_params import SamplingParams

_WIDTH, _PEAK, _SHARPNESS = 0.3, 5.0, 10.0


class AdaptiveP(Struct, frozen=True):
    """Prefers tokens near a target probability. Its memory is the sum of the probabilities of all tokens before, each
    times a weight, and the sum of these weights. A token has the weight 1, times `decay` for each token since. The
    memory begins as if the target had always been met. Satisfies `RememberingSampler`."""

    target: float
    decay: float

    @classmethod
    def of(cls, params: SamplingParams) -> AdaptiveP | None:
        """Returns the sampler; None where it is off."""
        return cls(params.adaptive_target, params.adaptive_decay) if params.adaptive_target >= 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        """Scores tokens by the distance of their probability from the aim. The aim is as far from the target as the
        mean of the probabilities so far, but on the other side. See SamplerLink."""
        total, count = self._sums(row)
        aim = min(1.0, max(0.0, 2.0 * self.target - total / count))
        row.score(NearScore(aim, _WIDTH, _PEAK, _SHARPNESS))

    def remember(self, row: SamplerRow, place: int) -> tuple[float, ...]:
        total, count = self._sums(row)
        return (float(row.scored[place]) + self.decay * total, 1.0 + self.decay * count)

    def _sums(self, row: SamplerRow) -> tuple[float, float]:
        if row.memory:
            return row.memory[0], row.memory[1]
        return self.target / (1.0 - self.decay), 1.0 / (1.0 - self.decay)
