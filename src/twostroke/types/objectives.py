"""What a user is promised: how soon an answer begins, how steadily it goes on."""

from __future__ import annotations

from dataclasses import dataclass

ITL_SHARE = 0.95
"""An ITL objective is met for a request where this share of its own gaps is no longer: for the scheduler that
promises, for `bench serve` and the simulator that count goodput, and for `plan` that predicts. Not the mean, not the
longest gap."""


@dataclass(frozen=True, slots=True)
class LatencyObjectives:
    """ttft_s: seconds to the first token, queueing included. itl_s: seconds of the gap between two tokens (ITL_SHARE).
    None means no objective.
    """

    ttft_s: float | None = None
    itl_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether at least one objective is set."""
        return self.ttft_s is not None or self.itl_s is not None

    def loosened(self, asked: LatencyObjectives | None) -> LatencyObjectives:
        """These, with what one request asks for in place of each where it asks."""
        if asked is None:
            return self
        return LatencyObjectives(
            self.ttft_s if asked.ttft_s is None else asked.ttft_s, self.itl_s if asked.itl_s is None else asked.itl_s
        )


NO_OBJECTIVES = LatencyObjectives()
