"""Which promises a soak found broken."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

MEMORY_SHARE, SHORT_SHARE, LONG_MINUTES = 0.02, 0.25, 10.0
"""Of growth: runs shorter than LONG_MINUTES are still filling histories that are bounded (steps, ended requests)."""
WARM_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """Of the server's processes, at one moment."""

    memory_bytes: int
    descriptors: int
    threads: int

    def shown(self) -> dict[str, float]:
        """For people."""
        megabytes = round(self.memory_bytes / 1e6, 2)
        return {"memory_mb": megabytes, "descriptors": self.descriptors, "threads": self.threads}


def memory_growth(samples: list[float]) -> float:
    """Share by which the last quarter is above the quarter after warming up (medians; below 0: it shrank)."""
    warm = samples[int(WARM_SHARE * len(samples)) :]
    if len(warm) < 4:
        return 0.0
    quarter = max(1, len(warm) // 4)
    first, last = median(warm[:quarter]), median(warm[-quarter:])
    return last / first - 1


def verdict(found: dict[str, Any]) -> list[str]:
    """One sentence for each broken promise."""
    tally, broken = found["tally"], []
    if tally["wrong"] or found["wrong_after"]:
        broken.append(f"{tally['wrong']} wrong answers under load, {found['wrong_after']} after it")
    if not tally["right"]:
        broken.append("nothing was answered, so nothing was tested")
    if tally["unexpected"]:
        broken.append(f"unexpected: {tally['unexpected']}")
    if not tally["refused"]:
        broken.append("nothing was refused at three times the capacity")
    stuck = {name: value for name, value in found["gauges_after"].items() if value}
    if stuck:
        broken.append(f"gauges not at zero: {stuck}")
    found["memory_growth"] = round(memory_growth(found["memory_mb"]), 4)
    if found["memory_growth"] > (MEMORY_SHARE if found["minutes"] >= LONG_MINUTES else SHORT_SHARE):
        broken.append(f"memory grew by {100 * found['memory_growth']:.1f}%")
    if found["after"]["descriptors"] > found["before"]["descriptors"] + 4:
        broken.append(f"descriptors: {found['before']['descriptors']} before, {found['after']['descriptors']} after")
    if found["exit_code"] or found["processes_left"]:
        broken.append(f"exit code {found['exit_code']}, {found['processes_left']} processes left")
    return broken
