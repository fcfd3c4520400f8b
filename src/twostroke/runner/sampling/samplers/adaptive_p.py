"""Adaptive-p (llama.cpp#17927): tokens near a target probability are preferred, and the target corrects itself."""

from __future__ import annotations

from msgspec import Struct

from twostroke.ops.attention.token_weights import NearScore
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling.sampling_params import SamplingParams

_WIDTH, _PEAK, _SHARPNESS = 0.3, 5.0, 10.0


class AdaptiveP(Struct, frozen=True):
    """Chooses tokens so that the mean probability of the chosen tokens stays near a target. The mean is weighted: a
    token has the weight 1, times `decay` for each token since. The sampler's memory is the weighted sum of the
    probabilities and the sum of the weights. It begins with a mean that is the target. Satisfies
    `RememberingSampler`."""

    target: float
    decay: float

    @classmethod
    def of(cls, params: SamplingParams) -> AdaptiveP | None:
        """Returns the sampler; None where it is off."""
        return cls(params.adaptive_target, params.adaptive_decay) if params.adaptive_target >= 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        """Scores tokens higher the nearer their probability is to an aim: 2 * target - mean of the chosen tokens'
        probabilities so far, between 0 and 1."""
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
