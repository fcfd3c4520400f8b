"""What a case of `tools.measure_cluster` is, and what it gives."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """figures: by name, with the unit in the name. reached: whether the goal was reached."""

    figures: Mapping[str, float]
    reached: bool

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"figures": dict(self.figures), "reached": self.reached}


class Case(Protocol):
    """One row of the table."""

    @property
    def name(self) -> str:
        """A word for the command line."""

    @property
    def goal(self) -> str:
        """In words."""

    @property
    def minutes(self) -> float:
        """About how long it takes."""

    def run(self, note: Note) -> Outcome:
        """Measure. Raises SystemExit with a reason where that is not possible."""


def gaps_of(times_s: Sequence[float]) -> list[float]:
    """The seconds between the pieces of one stream."""
    return [later - earlier for earlier, later in zip(times_s, times_s[1:], strict=False)]


def percentile(values: Sequence[float], share: float) -> float:
    """By linear interpolation, as `bench serve` has it. share: from 0 to 1."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
