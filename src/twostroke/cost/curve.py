"""A measured relation between two numbers, linear between the points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured function y(x), such as seconds by the number of rows: points (xs[i], ys[i]), between which it is
    linear. xs rise, and there is at least one point. Raises ValueError otherwise."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.xs, self.xs[1:], strict=False))
        if not self.xs or len(self.xs) != len(self.ys) or not rising:
            raise ValueError("a curve needs as many ys as xs, and xs that rise")

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Curve:
        """The piecewise linear curve through (x, y) pairs, which may come in any order."""
        ordered = sorted(points)
        return cls(tuple(x for x, _ in ordered), tuple(y for _, y in ordered))

    def at(self, x: float) -> float:
        """Returns y at x. Beyond the first and the last point it is the y of that point."""
        index = bisect_right(self.xs, x)
        if index == 0:
            return self.ys[0]
        if index == len(self.xs):
            return self.ys[-1]
        x0, y0 = self.xs[index - 1], self.ys[index - 1]
        return y0 + (self.ys[index] - y0) * (x - x0) / (self.xs[index] - x0)

    def scaled_at(self, x: float) -> float:
        """Returns y at x as `at` does, but beyond the last point y grows in proportion to x."""
        last = self.xs[-1]
        return self.ys[-1] * x / last if x > last else self.at(x)
