"""Random draws of a workload: a counter run through splitmix64, so that the seed decides every draw."""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): 64 bits in, 64 well-mixed bits out."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Draws:
    """A stream of draws: draw i is a function of (seed, stream, i). Streams of one seed are independent."""

    def __init__(self, seed: int, stream: str = "") -> None:
        key = mix(seed & _MASK)
        for byte in stream.encode():
            key = mix(key ^ byte)
        self._key = key
        self._count = 0

    def uniform(self) -> float:
        """Returns a number in [0, 1) with 53 random bits."""
        self._count += 1
        return (mix(self._key ^ mix(self._count)) >> 11) * 2.0**-53

    def below(self, limit: int) -> int:
        """Returns a whole number in [0, limit); limit is at least 1."""
        return min(limit - 1, int(self.uniform() * limit))

    def exponential(self, mean: float) -> float:
        """Returns an exponential number with this mean: the gap of a Poisson process of rate 1 / mean."""
        return -mean * math.log1p(-self.uniform())

    def normal(self) -> float:
        """Returns a normal number with mean 0 and deviation 1 (Box, Muller 1958)."""
        radius = math.sqrt(-2.0 * math.log1p(-self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())

    def gamma(self, shape: float, mean: float) -> float:
        """Returns a gap with this mean whose squared coefficient of variation is 1 / shape (Marsaglia, Tsang 2000)."""
        boost = 1.0
        if shape < 1.0:
            boost = (1.0 - self.uniform()) ** (1.0 / shape)
        d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = (1.0 + c * x) ** 3
            if v > 0 and math.log1p(-self.uniform()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return boost * d * v * mean / shape
