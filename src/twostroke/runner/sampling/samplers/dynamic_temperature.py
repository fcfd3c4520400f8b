"""Dynamic temperature: rows with a high entropy get a high temperature, and rows with a low entropy a low one."""

from __future__ import annotations

from msgspec import Struct

from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.portable import ln, powers


class DynamicTemperature(Struct, frozen=True):
    """The temperature T = least + (most - least) * (entropy / largest possible entropy) ^ exponent.
    Satisfies `SamplerLink`."""

    least: float
    most: float
    exponent: float

    @classmethod
    def of(cls, params: SamplingParams) -> DynamicTemperature | None:
        """Returns the sampler; None where it is off."""
        apart = params.dynatemp_range
        least, most = max(0.0, params.temperature - apart), params.temperature + apart
        return cls(least, most, params.dynatemp_exponent) if apart > 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        if len(row) < 2:
            return
        row.warm(1.0)
        share = max(0.0, row.entropy()) / ln(len(row))
        curved = share if self.exponent == 1.0 else _power(share, self.exponent)
        row.warm(self.least + (self.most - self.least) * curved)


def _power(share: float, exponent: float) -> float:
    """Returns share ^ exponent. 0 ^ 0 is 1."""
    if share <= 0.0:
        return 0.0 if exponent else 1.0
    return powers(share, [exponent])[0]
