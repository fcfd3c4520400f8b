"""The answer to a streamed request of /v1/responses whose prompt is too long: the events of a failed response, as
OpenAI's server sends them.

Codex looks for the error code context_length_exceeded only in these events, and then shortens the conversation; after a
status of 400 it gives up.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from twostroke.server.api.sse import Event, raw_event
from twostroke.server.errors import problem_of
from twostroke.server.serving import Serving
from twostroke.types.errors import ContextLengthExceeded


class StreamRefused(Exception):
    """Raised for a streamed response whose prompt is too long. model: the name that the client used. cause: the
    exception that was raised."""

    def __init__(self, model: str, cause: ContextLengthExceeded) -> None:
        super().__init__(str(cause))
        self.model, self.cause = model, cause


def failed_stream(refused: StreamRefused, serving: Serving) -> Response:
    """Returns response.created, response.in_progress and response.failed with the problem's code and message."""
    problem = problem_of(refused.cause)
    about: dict[str, Any] = {
        "id": "resp_" + serving.new_id(),
        "object": "response",
        "created_at": int(serving.wall_clock()),
        "model": refused.model,
        "output": [],
        "usage": None,
        "incomplete_details": None,
        "error": None,
    }
    failed = {**about, "status": "failed", "error": {"code": problem.code, "message": problem.message}}
    begun = {**about, "status": "in_progress"}
    said = (("response.created", begun), ("response.in_progress", begun), ("response.failed", failed))
    events = [
        Event(kind, {"type": kind, "sequence_number": number, "response": response})
        for number, (kind, response) in enumerate(said)
    ]
    headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    return Response(b"".join(map(raw_event, events)), 200, headers)
