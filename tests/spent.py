"""Where the time of a run went: seconds and tests of each folder, the longest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

LEAST_S = 1.0
"""Folders that took less are left out."""


class Report(Protocol):
    """What pytest tells of the setup, the call or the teardown of a test."""

    nodeid: str
    when: str
    duration: float


def by_folder(reports: Iterable[Report]) -> list[str]:
    """A line for each folder of tests/, and one for all."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for report in reports:
        folder = "/".join(report.nodeid.split("/")[:2])
        seconds[folder] += report.duration  # type: ignore[assignment]
        tests[folder] += report.when == "setup"
    long = [(name, spent) for name, spent in seconds.most_common() if spent >= LEAST_S]
    lines = [f"{spent:7.0f} s {tests[name]:6} tests  {name}" for name, spent in long]
    return [*lines, f"{sum(seconds.values()):7.0f} s {sum(tests.values()):6} tests  in all processes together"]
