"""The lines of a batch: the requests, and the result of each."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from twostroke.server.api.fields.disk_wish import FIELD, IN_MEMORY
from twostroke.server.stored.inner import InnerReply
from twostroke.types.reading.decoders import json_decoder

ENDPOINTS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    *("/v1/embeddings", "/v1/rerank", "/v1/score"),
)
MAX_LINES = 50_000
MAX_CUSTOM_ID = 512
MAX_ERRORS = 100
PRIORITY = 1
"""A priority above 0 is batch work: it takes the places that interactive requests leave."""


class BatchLine(msgspec.Struct):
    """One request. number: the number of its line, from 1 on."""

    custom_id: str
    url: str
    body: dict[str, Any]
    method: str = "POST"
    number: int = 0

    @property
    def model(self) -> str:
        """The name of the line's model; "" when it names none."""
        name = self.body.get("model")
        return name if isinstance(name, str) else ""


class LineError(msgspec.Struct, frozen=True):
    """An error of a line, or of a whole file (line None)."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


_LINE, _OBJECT = json_decoder(BatchLine), json_decoder(dict[str, Any])


def read_lines(data: bytes, endpoint: str) -> tuple[list[BatchLine], list[LineError]]:
    """Returns the lines of an input file, and their errors."""
    lines: list[BatchLine] = []
    errors: list[LineError] = []
    seen: set[str] = set()
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        if len(lines) >= MAX_LINES:
            errors.append(LineError("too_many_requests", f"A batch has at most {MAX_LINES:,} lines.", number))
            break
        fault = None
        try:
            line = _LINE.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            errors.append(LineError("invalid_json_line", f"This line is no request: {error}."[:300], number))
            continue
        line.number = number
        if not 0 < len(line.custom_id) <= MAX_CUSTOM_ID:
            fault = ("invalid_custom_id", f"custom_id must have 1 to {MAX_CUSTOM_ID} characters.", "custom_id")
        elif line.custom_id in seen:
            fault = ("duplicate_custom_id", "Another line has the same custom_id.", "custom_id")
        elif line.method != "POST":
            fault = ("invalid_method", "method must be POST.", "method")
        elif line.url != endpoint:
            fault = ("mismatched_url", f"url must be the batch's endpoint, {endpoint}.", "url")
        elif line.body.get("stream"):
            fault = ("invalid_request", "A batch streams nothing.", "body.stream")
        if fault is not None:
            code, message, param = fault
            errors.append(LineError(code, message, number, param))
        seen.add(line.custom_id)
        lines.append(line)
    if not lines and not errors:
        errors.append(LineError("empty_file", "The input file has no lines."))
    return lines, errors[:MAX_ERRORS]


def body_of(line: BatchLine) -> dict[str, Any]:
    """Returns the request to the server: the line's body as batch work."""
    body = dict(line.body)
    body["priority"] = max(PRIORITY, body["priority"]) if isinstance(body.get("priority"), int) else PRIORITY
    if body.get("store") is False:
        body.setdefault(FIELD, IN_MEMORY)
    if line.url == "/v1/responses":
        body["store"] = False
    return body


def result_line(line: BatchLine, reply: InnerReply, name: str) -> bytes:
    """Returns a line of the output file or of the error file."""
    response = {
        "status_code": reply.status,
        "request_id": reply.headers.get("x-request-id", name),
        "body": reply.json,
    }
    return _written({"id": name, "custom_id": line.custom_id, "response": response, "error": None})


def undone_line(line: BatchLine, name: str, code: str) -> bytes:
    """Returns a line of the error file for a request that was never run."""
    words = {"batch_expired": "This request was not run before the batch expired.",
             "batch_cancelled": "This request was not run before the batch was cancelled."}  # fmt: skip
    error = {"code": code, "message": words[code]}
    return _written({"id": name, "custom_id": line.custom_id, "response": None, "error": error})


def done_lines(journal: bytes) -> tuple[dict[str, bytes], int]:
    """Returns the complete lines of a journal by custom_id, and the length of all complete lines in bytes. When two
    lines have the same custom_id, the first one counts.

    A process that was killed while it wrote may leave part of a line at the end. This part does not count.
    """
    whole = journal[: journal.rfind(b"\n") + 1]
    found: dict[str, bytes] = {}
    for text in whole.splitlines(keepends=True):
        try:
            name = _OBJECT.decode(text).get("custom_id")
        except msgspec.MsgspecError:
            continue
        if isinstance(name, str):
            found.setdefault(name, text)
    return found, len(whole)


class Journal:
    """The results of a batch while it runs. Each line is written in one write, so a killed process leaves at most one
    incomplete line, at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def opened(self) -> dict[str, bytes]:
        """Returns the results so far by custom_id. Makes the file when there is none, and removes an incomplete line at
        its end."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._path.exists():
            self._path.touch(0o600)
        found, length = done_lines(self._path.read_bytes())
        os.truncate(self._path, length)
        return found

    def add(self, result: bytes) -> None:
        """Write the line of a result. Raises OSError when there is no room; then no part of the line stays in the file.
        """
        with self._path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            if file.write(result) != len(result):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def remove(self) -> None:
        """Remove the journal's file, because the batch has output files now, or has ended."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def failed_line(text: bytes) -> bool:
    """Returns True when a line belongs in the error file."""
    made = _OBJECT.decode(text)
    response = made.get("response")
    return not isinstance(response, dict) or response.get("status_code") != 200


def _written(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"
