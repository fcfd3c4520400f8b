"""Where the time of a run went: seconds and tests of each folder, and of the files that took longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

LEAST_S = 1.0
"""Folders that took less are left out."""
MOST_FILES = 40


class Report(Protocol):
    """pytest's report of the setup, the call or the teardown of a test."""

    nodeid: str
    when: str
    duration: float


def _spent(reports: Iterable[Report], place: Callable[[str], str]) -> tuple[Counter[str], Counter[str]]:
    """The seconds and the tests of each place."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for report in reports:
        name = place(report.nodeid)
        seconds[name] += report.duration  # type: ignore[assignment]
        tests[name] += report.when == "setup"
    return seconds, tests


def by_folder(reports: Iterable[Report]) -> list[str]:
    """A line for each folder of tests/, and one for all. The longest come first."""
    seconds, tests = _spent(reports, lambda test: "/".join(test.split("/")[:2]))
    long = [(name, spent) for name, spent in seconds.most_common() if spent >= LEAST_S]
    lines = [f"{spent:7.0f} s {tests[name]:6} tests  {name}" for name, spent in long]
    return [*lines, f"{sum(seconds.values()):7.0f} s {sum(tests.values()):6} tests  in all processes together"]


def by_file(reports: Iterable[Report], most: int = MOST_FILES) -> list[str]:
    """A line for each of the files that took longest."""
    seconds, tests = _spent(reports, lambda test: test.partition("::")[0])
    return [f"{spent:7.1f} s {tests[name]:6} tests  {name}" for name, spent in seconds.most_common(most)]
