"""Azure's LLM inference traces (2023, 2024): CSV with TIMESTAMP, ContextTokens, GeneratedTokens."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import UTC, datetime

from twostroke.lab.workload.mooncake import from_zero
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.trace_error import TraceError, broken

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EXPECTED = f"The first line is {','.join(COLUMNS)}; others look like 2023-11-16 18:15:46.6805900,374,44."


def parse_azure(lines: Iterable[str], source: str = "trace") -> list[WorkloadRequest]:
    """Returns the requests in order of arrival. Times count from the first arrival, and lengths of 0 become 1.

    Raises TraceError that names the line.
    """
    rows = csv.reader(lines)
    found: list[WorkloadRequest] = []
    places: list[int] | None = None
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if places is None:
                places = _places(row)
            else:
                found.append(_request([_cell(row, place, name) for place, name in zip(places, COLUMNS, strict=True)]))
    except (ValueError, OverflowError, csv.Error) as error:
        raise broken(source, max(1, rows.line_num), str(error), EXPECTED) from None
    if not found:
        raise TraceError(f"{source}: there is no request in it.", fix=EXPECTED)
    return from_zero(found)


def _places(row: list[str]) -> list[int]:
    names = [cell.strip().lstrip("\ufeff").lower() for cell in row]
    for name in COLUMNS:
        if name.lower() not in names:
            raise ValueError(f"the column {name} is missing")
    return [names.index(name.lower()) for name in COLUMNS]


def _cell(row: list[str], place: int, name: str) -> str:
    if place >= len(row):
        raise ValueError(f"{name} is missing")
    return row[place].strip()


def _request(cells: list[str]) -> WorkloadRequest:
    try:
        moment = datetime.fromisoformat(cells[0])
    except ValueError:
        raise ValueError(f"TIMESTAMP {cells[0][:40]!r} is not a date and time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    prompt, output = (_count(cell, name) for cell, name in zip(cells[1:], COLUMNS[1:], strict=True))
    return WorkloadRequest((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds(), prompt, output)


def _count(cell: str, name: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) < 12):
        raise ValueError(f"{name} is {cell[:40]!r}, not a whole number")
    return max(1, int(cell))
