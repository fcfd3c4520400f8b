"""The latest TTFTs and gaps between tokens, and their percentiles against objectives."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Any

MOST_FIRST, MOST_NEXT = 512, 4096
PERCENTILES = (50, 90, 99)


class Recent:
    """Holds the latest 512 TTFTs and the latest 4,096 gaps between two tokens of an answer. The thread that runs the
    engine's steps adds values; any thread may read them."""

    def __init__(self) -> None:
        self.ttft_s: deque[float] = deque(maxlen=MOST_FIRST)
        self.itl_s: deque[float] = deque(maxlen=MOST_NEXT)

    def figures(self, ttft_s: float | None = None, itl_s: float | None = None) -> dict[str, Any]:
        """Returns counts and percentiles of TTFT and ITL. ttft_s, itl_s: the objectives in seconds, for the share of
        values within them."""
        return {"ttft": _figures(self.ttft_s.copy(), ttft_s), "itl": _figures(self.itl_s.copy(), itl_s)}


def _figures(seconds: Sequence[float], objective_s: float | None) -> dict[str, Any]:
    ordered = sorted(seconds)
    found: dict[str, Any] = {"count": len(ordered), "objective_s": objective_s}
    if ordered:
        for share in PERCENTILES:
            found[f"p{share}_s"] = round(ordered[ceil(share / 100 * len(ordered)) - 1], 6)
        if objective_s is not None:
            found["within"] = sum(value <= objective_s for value in ordered) / len(ordered)
    return found
