"""Writes the times of single ops as text: a table for each model and pair of formats, a column for each size of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]
MOST_STREAMS = 64
"""Up to this number of rows, the rate of an op is given in bytes a second; beyond, in operations a second."""


def kernel_tables(rows: Iterable[Row]) -> str:
    """Returns the tables in Markdown. A cell has the microseconds of one call, its GB/s or TOP/s, and its share of the
    whole model's step by these times, in per cent."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row["table"], []).append(row)
    return "\n".join(line for name, those in tables.items() for line in _table(name, those))


def _table(name: str, rows: list[Row]) -> Iterator[str]:
    sizes = sorted({row["rows"] for row in rows})
    sums = {
        size: sum(row["seconds_of_call"] * row.get("copies", 0.0) for row in rows if row["rows"] == size)
        for size in sizes
    }
    yield f"\n**{name}**: us of a call, GB/s (rows of streams) or TOP/s (prompts), % of a step\n"
    yield "| op | " + " | ".join(str(size) for size in sizes) + " |"
    yield "| --- |" + " --- |" * len(sizes)
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        cells.setdefault(row["op"], {})[row["rows"]] = _cell(row, sums[row["rows"]])
    for op, by_size in cells.items():
        yield f"| {op} | " + " | ".join(by_size.get(size, "") for size in sizes) + " |"
    if any(sums.values()):
        yield "| sum, whole model | " + " | ".join(f"{1e3 * sums[size]:,.2f} ms" for size in sizes) + " |"
        yield "| rows a second | " + " | ".join(f"{size / sums[size]:,.0f}" for size in sizes) + " |"


def _cell(row: Row, whole: float) -> str:
    taken = _short(1e6 * row["seconds_of_call"])
    if "until_started" in row:
        return f"{taken}, started {_short(1e6 * row['until_started'])}"
    rate = ""
    if "bytes_per_s" in row:
        is_prompt = row["rows"] > MOST_STREAMS
        rate = f" {_short(row['flops_per_s'] / 1e12)}T" if is_prompt else f" {_short(row['bytes_per_s'] / 1e9)}G"
    share = f" {100 * row['seconds_of_call'] * row['copies'] / whole:.0f}%" if row["copies"] and whole else ""
    return taken + rate + share


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"
