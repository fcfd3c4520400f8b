"""Finds the promises that a soak has broken."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

MEMORY_SHARE, SHORT_SHARE, LONG_MINUTES = 0.02, 0.25, 10.0
"""The growth of memory that is allowed, as a share. SHORT_SHARE holds for runs shorter than LONG_MINUTES, in which
bounded histories (steps, ended requests) are still filling."""
WARM_SHARE = 0.3
"""The share of a run that is left out as warm-up when the histories were never full."""
MOST_WARM_SHARE = 0.5
"""The largest share of a long run that may pass before memory counts. When the histories take longer to fill, the run
shows nothing."""
ENDS_SHARE = 1 / 8
"""The share of the counted samples at each end of a run whose medians are compared."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory, the descriptors and the threads of the server's processes at one moment."""

    memory_bytes: int
    descriptors: int
    threads: int

    def shown(self) -> dict[str, float]:
        """The sample as numbers for people."""
        megabytes = round(self.memory_bytes / 1e6, 2)
        return {"memory_mb": megabytes, "descriptors": self.descriptors, "threads": self.threads}


def warm_until(fills: list[float]) -> int | None:
    """Returns the index of the sample from which on memory counts. Returns None when the histories were never full.

    fills: for each sample, how full the server's least full history is, as the server reports it. A server grows while
    its histories fill. Then it is given the same time once more: entries differ in size and lie among other things. So
    a history has the room that it needs only when each entry has been replaced by a new one. Growth after that is a
    leak.
    """
    full = next((place for place, fill in enumerate(fills) if fill >= 1.0), None)
    return None if full is None else 2 * full


def memory_growth(samples: list[float]) -> float:
    """Returns the share by which the median of the last eighth of the samples is above that of the first eighth. A
    negative share means that the memory shrank."""
    if len(samples) < 4:
        return 0.0
    few = max(1, int(ENDS_SHARE * len(samples)))
    return median(samples[-few:]) / median(samples[:few]) - 1


def _judge_memory(found: dict[str, Any]) -> str | None:
    """Judges the growth of memory, and adds the figures to `found`. Returns the broken promise as a sentence, or None.
    """
    samples, warm = found["memory_mb"], warm_until(found["least_fill"])
    long = found["minutes"] >= LONG_MINUTES
    late = warm is None or warm > MOST_WARM_SHARE * len(samples)
    first = int(WARM_SHARE * len(samples)) if warm is None or late else warm
    found["memory_counts_from_minute"] = round(found["minutes"] * first / max(1, len(samples)), 2)
    found["memory_growth"] = round(memory_growth(samples[first:]), 4)
    if long and late:
        return "the run was too short: the histories were not full, and replaced once, in its first half"
    if found["memory_growth"] > (MEMORY_SHARE if long else SHORT_SHARE):
        return f"memory grew by {100 * found['memory_growth']:.1f}%"
    return None


def verdict(found: dict[str, Any]) -> list[str]:
    """Returns one sentence for each broken promise."""
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
    memory = _judge_memory(found)
    if memory is not None:
        broken.append(memory)
    if found["after"]["descriptors"] > found["before"]["descriptors"] + 4:
        broken.append(f"descriptors: {found['before']['descriptors']} before, {found['after']['descriptors']} after")
    if found["exit_code"] or found["processes_left"]:
        broken.append(f"exit code {found['exit_code']}, {found['processes_left']} processes left")
    return broken
