"""What a completion's time went to. The parts add up to its end-to-end time."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TimeParts:
    """Seconds, each second in one part.

    queue_s: seconds from arrival until the first position was planned, without encode_s. encode_s: its images, encoded.
    own_prefill_s: the prompt's own positions.
    others_prefill_s: what other requests' prefill added to its steps. decode_s: its tokens, had no other request
    been in prefill. preempted_s: put back, waiting for pages. recompute_s: positions computed again after that.
    host_gap_s: seconds in and between its steps in which neither model nor sampling ran. client_stall_s: seconds in
    which its reader left pieces lying.
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
        """All parts."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, float]:
        """Name -> seconds, in the order in which they usually pass."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __sub__(self, other: TimeParts) -> TimeParts:
        return TimeParts(*(mine - theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))


def _values(parts: TimeParts) -> list[float]:
    return list(parts.by_name().values())
