"""Decides how many replicas there should be. They must be enough for the requests under way; a replica is ended only
after some delay."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Autoscale:
    """The rule by which a fleet is scaled. low, high: the least and the most replicas. per_replica: the number of
    requests under way that one replica should have. every_s: the seconds between two looks at the load. start_s: the
    seconds until a new replica takes requests. patience_s: how long fewer replicas must have been enough before one is
    ended."""

    low: int
    high: int
    per_replica: float
    every_s: float = 10.0
    start_s: float = 60.0
    patience_s: float = 120.0


class Autoscaler:
    """Decides how many replicas are wanted, and remembers since when fewer would have been enough."""

    def __init__(self, rule: Autoscale) -> None:
        self.rule = rule
        self._fewer_since_s: float | None = None

    def wanted(self, under_way: int, have: int, now_s: float) -> int:
        """Returns how many replicas there should be. Where more are needed, all of them are wanted at once. Where fewer
        are enough, one fewer is wanted after the rule's patience. under_way: the requests under way. have: the present
        number of replicas."""
        rule = self.rule
        needed = min(rule.high, max(rule.low, math.ceil(under_way / rule.per_replica)))
        if needed >= have:
            self._fewer_since_s = None
            return needed
        if self._fewer_since_s is None:
            self._fewer_since_s = now_s
        if now_s - self._fewer_since_s < rule.patience_s:
            return have
        return have - 1
