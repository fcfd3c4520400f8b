"""Logs: lines for people, or one JSON object a line for machines. Every line of a request has its id.

    {"time": "2026-11-21T09:00:00.123Z", "level": "info", "logger": "twostroke.server", "message": "request",
     "request_id": "...", "method": "POST", "path": "/v1/chat/completions", "status": 200, "seconds": 0.512,
     "response_id": "chatcmpl-...", "prompt_tokens": 20, "output_tokens": 64, "ttft_s": 0.031, ...}
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, TextIO

from twostroke.server.facts import RequestFacts

NAME = "twostroke"
log = logging.getLogger(f"{NAME}.server")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object on one line, which includes each value of `extra` under its name."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a line without its end."""
        value: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            value["error"] = self.formatException(record.exc_info)
        return json.dumps(value, default=str)


class TextLines(logging.Formatter):
    """Formats a record as one line: time, level, text, then name=value. Texts from a client are written so that they
    cannot start a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a line without its end; a traceback comes below it."""
        fields = " ".join(f"{name}={json.dumps(value, default=str)}" for name, value in _extra(record).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()} {fields}".rstrip()
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def set_up(lines: logging.Formatter, level: int, stream: TextIO) -> logging.Handler:
    """Write this package's records to `stream`. Returns the handler, for `tear_down`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines)
    own = logging.getLogger(NAME)
    own.addHandler(handler)
    own.setLevel(level)
    own.propagate = False
    return handler


def tear_down(handler: logging.Handler) -> None:
    """Undoes what `set_up` did to the logger: removes the handler, and restores the logger's level and propagation."""
    own = logging.getLogger(NAME)
    own.removeHandler(handler)
    own.setLevel(logging.NOTSET)
    own.propagate = True


def request_ended(facts: RequestFacts) -> None:
    """Log the line of a request, at level info."""
    if not log.isEnabledFor(logging.INFO):
        return
    fields: dict[str, Any] = {
        "request_id": facts.request_id,
        "method": facts.method,
        "path": facts.path[:500],
        "status": facts.status,
        "seconds": round(facts.end_s - facts.begin_s, 6),
    }
    if facts.response_id:
        fields |= {
            "response_id": facts.response_id,
            "prompt_tokens": facts.prompt_tokens,
            "cached_tokens": facts.cached_tokens,
            "output_tokens": facts.output_tokens,
            "finish_reasons": list(facts.finish_reasons),
        }
    if facts.ignored_fields:
        fields["ignored_fields"] = list(facts.ignored_fields)
    if facts.warnings:
        fields["warnings"] = list(facts.warnings)
    if facts.timings is not None:
        fields |= {"queue_s": facts.timings.queue_s, "ttft_s": facts.timings.ttft_s}
    log.info("request", extra=fields)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
