"""The objectives that a user is promised: how soon an answer begins, and how steadily it goes on."""

from __future__ import annotations

from dataclasses import dataclass

ITL_SHARE = 0.95
"""An ITL objective is met for a request where this share of the request's own gaps is no longer than the objective. The
scheduler, `bench serve`, the simulator and `plan` all use this definition. It is neither the mean nor the longest gap.
"""


@dataclass(frozen=True, slots=True)
class LatencyObjectives:
    """ttft_s: the seconds to the first token, queueing included. itl_s: a share ITL_SHARE of the gaps between two
    tokens must be no longer than this, in seconds. None means no objective."""

    ttft_s: float | None = None
    itl_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether at least one objective is set."""
        return self.ttft_s is not None or self.itl_s is not None

    def loosened(self, asked: LatencyObjectives | None) -> LatencyObjectives:
        """Returns these objectives, each replaced by the request's own objective (`asked`), tighter or looser, where
        the request has one."""
        if asked is None:
            return self
        return LatencyObjectives(
            self.ttft_s if asked.ttft_s is None else asked.ttft_s, self.itl_s if asked.itl_s is None else asked.itl_s
        )


NO_OBJECTIVES = LatencyObjectives()
