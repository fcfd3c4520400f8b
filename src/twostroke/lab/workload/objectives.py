"""The latency objectives of a request, and whether it met them."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.summary import percentile
from twostroke.types.objectives import ITL_SHARE


@dataclass(frozen=True, slots=True)
class Objectives:
    """Objectives in seconds; None where there is none. A request meets the ITL objective if 95% of its own gaps are at
    most so long."""

    ttft_s: float | None = None
    itl_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether at least one objective is set."""
        return any(value is not None for value in (self.ttft_s, self.itl_s, self.tpot_s, self.e2e_s))

    def words(self) -> str:
        """Returns the objectives as text, such as "TTFT 1000 ms, ITL 50 ms"."""
        named = (("TTFT", self.ttft_s), ("ITL", self.itl_s), ("TPOT", self.tpot_s), ("E2E", self.e2e_s))
        return ", ".join(f"{name} {1e3 * value:g} ms" for name, value in named if value is not None)


def met(seen: Observation, wanted: Objectives) -> bool:
    """Returns whether a whole answer met every objective. An objective counts as missed if the request has no figure
    for it."""
    if not seen.whole or not seen.arrivals:
        return False
    gaps = sorted(seen.gaps_s) if wanted.itl_s is not None else []
    pairs = (
        (wanted.ttft_s, seen.ttft_s),
        (wanted.itl_s, percentile(gaps, ITL_SHARE) if gaps else None),
        (wanted.tpot_s, seen.tpot_s),
        (wanted.e2e_s, seen.e2e_s),
    )
    return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)
