"""Reads and writes numbers of CPUs in the form of Linux: "0-3,8"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ANY = "any"
"""The text for threads that run where the system places them."""


def read_cpus(text: str) -> tuple[int, ...]:
    """Returns the numbers in a text; "0-3,8" gives five. Parts in another form, such as ANY, give no numbers."""
    return tuple(dict.fromkeys(_numbers(text)))


def write_cpus(numbers: Iterable[int]) -> str:
    """Returns the text for these numbers, the opposite of `read_cpus`; ANY where there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs) or ANY


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not dash):
            yield from range(int(first), int(last or first) + 1)
