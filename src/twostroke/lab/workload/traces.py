"""Finds the format of a trace, and reads its requests."""

from __future__ import annotations

import json
from collections.abc import Callable

from twostroke.lab.workload.azure import parse_azure
from twostroke.lab.workload.mooncake import parse_mooncake
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.sharegpt import about_tokens, parse_sharegpt
from twostroke.lab.workload.trace_error import TraceError
from twostroke.types.errors import ConfigError

SHAREGPT, MOONCAKE, AZURE = "sharegpt", "mooncake", "azure"
FORMATS = (SHAREGPT, MOONCAKE, AZURE)


def format_of(text: str, source: str = "trace") -> str:
    """Returns one of FORMATS, decided by the first line. Raises TraceError where it is not valid."""
    first = next((line.strip() for line in text.lstrip("\ufeff").split("\n") if line.strip()), "")
    if first.startswith("[") or (first.startswith("{") and '"conversation' in text[:100_000]):
        return SHAREGPT
    if first.startswith("{"):
        return MOONCAKE
    if "timestamp" in first.lower() and "," in first:
        return AZURE
    raise TraceError(
        f"{source}, line 1: this is no trace that is known.",
        why=f"It begins with {json.dumps(first[:40])}.",
        fix="Give ShareGPT JSON, Mooncake JSONL or Azure's CSV with its line of names.",
    )


def parse_trace(
    text: str,
    source: str = "trace",
    form: str | None = None,
    count_tokens: Callable[[str], int] = about_tokens,
) -> list[WorkloadRequest]:
    """Reads the requests of a trace. form: one of FORMATS; None lets the first line decide. Raises TraceError that
    names the line."""
    chosen = form or format_of(text, source)
    if chosen == SHAREGPT:
        return parse_sharegpt(text, count_tokens, source)
    if chosen == MOONCAKE:
        return parse_mooncake(text.lstrip("\ufeff").split("\n"), source)
    if chosen == AZURE:
        return parse_azure(text.split("\n"), source)
    raise ConfigError(f"There is no trace format {chosen!r}.", fix="Choose one of " + ", ".join(FORMATS) + ".")
