"""A comparison of engines as text: a table for each kind of weights, with shares of the machine's limit, and below it
the faults."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.backends.cpu.limits import Limits
from twostroke.lab.bench.cases import is_file, shown
from twostroke.lab.bench.compare import Column, Row


def text(model: str, limits: Limits, found: Sequence[Row], columns: Sequence[Column], rounds: int) -> str:
    """Returns the comparison as Markdown that also reads well in a terminal."""
    lines = [f"{model}, medians of {rounds} rounds in turn."]
    if any(row.bound is not None for row in found):
        lines.append(
            f"Limits, the highest that were measured: {limits.words()}; shares are of the limits around each case."
        )
    lines.append("")
    for weights in dict.fromkeys(row.weights for row in found):
        lines += _table(weights, [row for row in found if row.weights == weights])
    for column in columns:
        for case, why in column.faults.items():
            lines.append(f"{column.contestant.key}, {case}: {why}")
    wrong = [row.contradiction for row in found if row.contradiction is not None]
    lines += ["ERROR: figures of this report contradict each other:", *wrong] if wrong else []
    return "\n".join(lines)


def _table(weights: str, found: Sequence[Row]) -> list[str]:
    names = [name for name in found[0].values]
    lines = [
        f"{weights}, the same GGUF file" if is_file(weights) else f"{weights} weights",
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
