"""A comparison in words: a table for each number of bits, and what the shares mean.

Knows: rows, limits.
Must not know: how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.backends.cpu.limits import Limits
from twostroke.bench.cases import shown
from twostroke.bench.compare import Column, Row


def text(model: str, limits: Limits, found: Sequence[Row], columns: Sequence[Column], rounds: int) -> str:
    """Markdown that also reads well in a terminal."""
    lines = [
        f"{model}, medians of {rounds} rounds in turn.",
        f"Limits, the highest that were measured: {limits.words()}; shares are of the limits around each case.",
        "",
    ]
    for bits in sorted({row.bits for row in found}, reverse=True):
        lines += _table(bits, [row for row in found if row.bits == bits])
    for column in columns:
        for case, why in column.faults.items():
            lines.append(f"{column.contestant.key}, {case}: {why}")
    wrong = [row.contradiction for row in found if row.contradiction is not None]
    lines += ["ERROR: figures of this report contradict each other:", *wrong] if wrong else []
    return "\n".join(lines)


def _table(bits: int, found: Sequence[Row]) -> list[str]:
    names = [name for name in found[0].values]
    lines = [
        f"int{bits} weights",
        "",
        "| case | " + " | ".join(names) + " | of the limit | times the best peer |",
        "| --- |" + " --- |" * (len(names) + 2),
    ]
    for row in found:
        cells = ["-" if value is None else shown(value, row.case.unit) for value in row.values.values()]
        share = (
            "-" if row.share_of_limit is None or row.bound is None else f"{row.share_of_limit:.0%} ({row.bound.words})"
        )
        times = "-" if row.times_best is None else f"{row.times_best:.2f}"
        lines.append(f"| {row.case.name} | " + " | ".join(cells) + f" | {share} | {times} |")
    return [*lines, ""]
