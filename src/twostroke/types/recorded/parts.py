"""How the time of a completion is divided into parts. The parts add up to its end-to-end time."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TimeParts:
    """The seconds of one completion; each second is counted in one part.

    queue_s: seconds from arrival until the first position was planned, without encode_s. encode_s: seconds in which its
    images were encoded. own_prefill_s: seconds for the prompt's own positions. others_prefill_s: seconds that other
    requests' prefill added to its steps. decode_s: seconds for its tokens, as if no other request had been in prefill.
    preempted_s: seconds in which it was preempted and waited for pages. recompute_s: seconds for positions that were
    computed again after a preemption. host_gap_s: seconds in and between its steps in which neither model nor sampling
    ran. client_stall_s: seconds in which pieces were ready and its reader did not take them.
    """

    queue_s: float = 0.0
    encode_s: float = 0.0
    own_prefill_s: float = 0.0
    others_prefill_s: float = 0.0
    decode_s: float = 0.0
    preempted_s: float = 0.0
    recompute_s: float = 0.0
    host_gap_s: float = 0.0
    client_stall_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The sum of all parts, in seconds."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, float]:
        """Returns the seconds of each part by its name, in the order in which the parts usually pass."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __sub__(self, other: TimeParts) -> TimeParts:
        return TimeParts(*(mine - theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))


def _values(parts: TimeParts) -> list[float]:
    return list(parts.by_name().values())
