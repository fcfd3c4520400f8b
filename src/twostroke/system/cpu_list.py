"""Numbers of CPUs as Linux writes them: "0-3,8"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ANY = "any"
"""Threads run where the system places them."""


def read_cpus(text: str) -> tuple[int, ...]:
    """ "0-3,8" -> five numbers; parts in another form, such as ANY, name none."""
    return tuple(dict.fromkeys(_numbers(text)))


def write_cpus(numbers: Iterable[int]) -> str:
    """The opposite; ANY for no number."""
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
