"""How many replicas there should be: enough for the requests that are under way, with patience before one is ended."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Autoscale:
    """low to high replicas; one for every `per_replica` requests under way, looked at every every_s seconds.

    start_s: until a new one takes requests. patience_s: fewer must have been enough all this time before one is ended.
    """

    low: int
    high: int
    per_replica: float
    every_s: float = 10.0
    start_s: float = 60.0
    patience_s: float = 120.0


class Autoscaler:
    """Says how many are wanted; keeps how long fewer would have done."""

    def __init__(self, rule: Autoscale) -> None:
        self.rule = rule
        self._fewer_since_s: float | None = None

    def wanted(self, under_way: int, have: int, now_s: float) -> int:
        """How many replicas to have: more at once where more are needed, one fewer at a time after the rule's
        patience."""
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
