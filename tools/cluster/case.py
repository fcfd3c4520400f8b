"""Defines a case of `tools.measure_cluster` and its outcome."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """figures: the measured figures by name, with the unit in the name. reached: whether the goal was reached."""

    figures: Mapping[str, float]
    reached: bool

    def as_json(self) -> dict[str, Any]:
        """Returns the outcome as plain values for JSON."""
        return {"figures": dict(self.figures), "reached": self.reached}


class Case(Protocol):
    """One measurement of the cluster: one row of the table of results."""

    @property
    def name(self) -> str:
        """The name of the case on the command line."""

    @property
    def goal(self) -> str:
        """The goal of the case in words."""

    @property
    def minutes(self) -> float:
        """How long the case takes, about, in minutes."""

    def run(self, note: Note) -> Outcome:
        """Measure, and return the outcome. Raises SystemExit with a reason when the case cannot be measured."""


def gaps_of(times_s: Sequence[float]) -> list[float]:
    """The seconds between the pieces of one stream."""
    return [later - earlier for earlier, later in zip(times_s, times_s[1:], strict=False)]


def percentile(values: Sequence[float], share: float) -> float:
    """Returns a percentile by linear interpolation, as `bench serve` does. share: the percentile, from 0 to 1."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
