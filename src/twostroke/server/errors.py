"""Errors as clients see them: one table from exception class to status, and one JSON shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response

from twostroke.server.api.sse import line_json
from twostroke.types.errors import (
    ContextLengthExceeded,
    EngineStopped,
    HelperNotStarted,
    InvalidRequest,
    ModelUnavailable,
    Overloaded,
    TokenizerFailed,
    TwostrokeError,
    UnreadOverflow,
)
from twostroke.types.grammar import TOO_HEAVY
from twostroke.types.not_loaded import unavailable_of
from twostroke.types.output import Delta
from twostroke.types.pooling import Task
from twostroke.types.request import FinishReason
from twostroke.types.sampling.forbidden_tokens import NO_TOKEN_LEFT

MESSAGES_PATH = "/v1/messages"
OLLAMA_PATH = "/api/"
INVALID = "invalid_request_error"
SERVER = "server_error"
MOST_LISTED = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a client gets it: an HTTP status and the four parts of OpenAI's error object. messages_text: the text
    that Anthropic's clients look for, when it is not `message`."""

    status: int
    message: str
    kind: str = INVALID
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    messages_text: str | None = None

    def body(self) -> bytes:
        """Returns the error as JSON; all four keys are always there."""
        return line_json(
            {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}
        )

    @property
    def placed_message(self) -> str:
        """The message for APIs whose errors have no field for the parameter. Where the parameter is an element of a
        list, such as messages[2], the message begins with its name."""
        named = self.param is not None and "[" in self.param and self.param not in self.message
        return f"{self.param}: {self.message}" if named else self.message

    def response(self, path: str = "") -> Response:
        """Returns the problem as an HTTP response, in the form of the API at this path."""
        body = line_json(messages_problem(self)) if path.startswith(MESSAGES_PATH) else self.body()
        if path.startswith(OLLAMA_PATH):
            body = line_json({"error": self.placed_message})
        return Response(body, self.status, dict(self.headers), media_type="application/json")


MODEL_STATE = "x-twostroke-model-state"
"""The header, with the value "failed", of an error answer that is due to a model which could not be loaded."""


class HttpProblem(Exception):
    """Raised to end a request with this problem as its answer."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.code)


class EngineFault(TwostrokeError):
    """Raised when the engine ended one request by itself. The client gets a 500 without the text, which is in the log.
    """


class SlowReader(Exception):
    """Raised when the client did not read its answer for too long; its request is dropped."""


INTERNAL = Problem(500, "The server failed to answer this request; its log says why.", SERVER, code="internal_error")
STOPPED = Problem(503, "The engine is not running.", SERVER, code="engine_stopped", headers={"retry-after": "5"})
OVERLOADED = Problem(
    503, "Too many requests are waiting; try again later.", SERVER, code="overloaded", headers={"retry-after": "2"}
)
POISON = replace(INTERNAL, headers={"x-should-retry": "false"})
HELPER_NOT_STARTED = Problem(
    500,
    "A process or thread that this request needs did not start; the server's log says why. Ask without a grammar, a "
    "schema, images or PDF files.",
    SERVER,
    code="helper_not_started",
    headers={"x-should-retry": "false"},
)
TOKENIZER_FAILED = Problem(
    500,
    "The model's tokenizer failed on this text; the server's log says why. The same text would fail again.",
    SERVER,
    code="tokenizer_failed",
    headers={"x-should-retry": "false"},
)
SLOW_READER = Problem(408, "The answer was not read fast enough; the request has ended.", SERVER, code="slow_reader")
TOO_DEEP = Problem(400, "The JSON of the request is nested too deeply.", code="invalid_json")
HEADERS_TOO_LARGE = Problem(431, "The request's headers are too many or too long.", code="headers_too_large")
BODY_TIMEOUT = Problem(408, "The request's body did not arrive in time.", code="request_timeout")


UNSUPPORTED = "unsupported_value"
"""The error code for a field that this server does not support."""
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""With these details the `anthropic` package sends the request again, whole and without `thread`."""


def messages_problem(problem: Problem) -> dict[str, Any]:
    """Returns Anthropic's error object."""
    kind = _MESSAGES_KINDS.get(problem.status, "api_error" if problem.status >= 500 else "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": problem.messages_text or problem.placed_message}
    if (problem.param, problem.code) == ("thread", UNSUPPORTED):
        error["details"] = _NO_THREADS
    return {"type": "error", "error": error}


_MESSAGES_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def refused(error: Overloaded) -> Problem:
    """Returns 503 with the predicted time, in whole seconds, after which the client should try again."""
    return Problem(
        503, str(error), SERVER, code="overloaded", headers={"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    )


def unavailable(error: ModelUnavailable) -> Problem:
    """Returns 503 with the reason why the model could not be loaded."""
    if error.retry_after_s is None:
        headers = {"x-should-retry": "false"}
    else:
        headers = {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if error.code == "model_failed":
        headers[MODEL_STATE] = "failed"
    return Problem(503, str(error), SERVER, param="model", code=error.code, headers=headers)


def body_too_large(limit_bytes: int) -> Problem:
    """Returns the problem with status 413 that states the limit."""
    return Problem(
        413,
        f"The request's body is larger than {limit_bytes:,} bytes. Shorten it, or start the server with a larger "
        "--body-memory: one body may take a quarter of it.",
        code="request_too_large",
    )


def too_many_values(most: int) -> Problem:
    """Returns the problem with status 413 for a body whose values would take many times its size in memory."""
    return Problem(
        413,
        f"The request's JSON has more than {most:,} commas and brackets. Send it in several requests.",
        code="request_too_large",
    )


def too_long(error: ContextLengthExceeded) -> Problem:
    """Returns the problem in the words that agents look for, in order to shorten the conversation: Anthropic's and
    OpenAI's.

    Numbers are written without commas, as the clients read them.
    """
    found, most = error.prompt_tokens, error.most_tokens
    more = "" if error.exact else " or more"
    what = error.param if error.param in ("messages", "prompt") else "input"
    return Problem(
        400,
        f"This model's maximum context length is {most} tokens. However, your {what} resulted in {found} tokens"
        f"{more}: the input exceeds the context window of this model. Please reduce the length of the {what} to at "
        f"most {most - 1} tokens, so that there is room for an answer.",
        param=error.param,
        code="context_length_exceeded",
        messages_text=f"prompt is too long: {found} tokens > {most - 1} maximum"
        + ("" if error.exact else " (it has so many tokens or more)"),
    )


def unknown_model(asked: str, served: str) -> Problem:
    """Returns 404 for a model that this server does not serve, in the form that OpenAI's clients expect."""
    return Problem(
        404, f"The model {asked[:200]!r} is not served here; use {served!r}.", param="model", code="model_not_found"
    )


def unknown_among(asked: str, names: Sequence[str]) -> Problem:
    """Returns 404 for a name that none of several models has, with the existing names."""
    listed = ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED} more" * (len(names) > MOST_LISTED))
    message = f"The model {asked[:200]!r} is not served here; there are {listed}."
    return Problem(404, message, param="model", code="model_not_found")


def unknown_request(asked: str) -> Problem:
    """Returns 404 for GET /v1/requests/{id}/explain, when no request with this id has ended on this server, or when it
    ended too long ago."""
    return Problem(
        404,
        f"No request with the id {asked[:200]!r} has ended here; it may still run, or newer ones took its place.",
        param="request_id",
        code="request_not_found",
    )


def unknown_response(asked: str, server_keeps: bool) -> Problem:
    """Returns 404 for a response of /v1/responses that a client asks for again. server_keeps: whether the server stores
    responses in a folder."""
    why = (
        "It was never stored, was removed, or belongs to another key; old ones go after --stored-age."
        if server_keeps
        else "This server keeps none: `store` is answered with false; --stored-work FOLDER changes that."
    )
    return Problem(
        404,
        f"No response with the id {asked[:200]!r} is kept. {why} Send the whole conversation as `input`.",
        param="response_id",
        code="response_not_found",
    )


_TASK_PATHS = {
    Task.GENERATE: "generates text: ask /v1/chat/completions or /v1/completions",
    Task.EMBED: "makes embeddings: ask /v1/embeddings",
    Task.RERANK: "scores pairs of texts: ask /v1/rerank or /v1/score",
}


def other_task(served: str, own: Task, wanted: Task) -> Problem:
    """Returns 400: the model is served for another task than the path's."""
    start = {
        Task.GENERATE: "serve a model that generates text",
        Task.EMBED: "serve a model that makes embeddings, or start this one with --task embed",
        Task.RERANK: "serve a reranker, or start this one with --task rerank if it is a Qwen3-Reranker",
    }
    return Problem(
        400,
        f"This path is for the task {wanted}, and the model {served!r} {_TASK_PATHS[own]}. "
        f"For this path, {start[wanted]}.",
        param="model",
        code="unsupported_model",
    )


def problem_of(error: Exception) -> Problem:
    """Returns the problem that an exception becomes for the client. An unforeseen exception becomes a 500 without its
    text."""
    if isinstance(error, HttpProblem):
        return error.problem
    if isinstance(error, ContextLengthExceeded) and error.prompt_tokens:
        return too_long(error)
    if isinstance(error, ContextLengthExceeded):
        return Problem(400, str(error), param=error.param, code="context_length_exceeded")
    if isinstance(error, InvalidRequest):
        return Problem(400, str(error), param=error.param, code=error.code)
    if isinstance(error, EngineStopped):
        return STOPPED
    if isinstance(error, Overloaded):
        return refused(error)
    if isinstance(error, ModelUnavailable):
        return unavailable(error)
    if isinstance(error, UnreadOverflow):
        return SLOW_READER
    return _PROBLEMS.get(type(error), INTERNAL)


_PROBLEMS: dict[type[Exception], Problem] = {
    EngineFault: POISON,
    TokenizerFailed: TOKENIZER_FAILED,
    HelperNotStarted: HELPER_NOT_STARTED,
}


def fault_of(delta: Delta) -> TwostrokeError | None:
    """Returns the error of an answer's last piece when the engine ended the request by itself; None when there is none.
    """
    if delta.finish_reason == FinishReason.ERROR and (delta.error or "").startswith(TOO_HEAVY):
        return InvalidRequest(
            TOO_HEAVY, param="grammar", code="grammar_too_heavy", fix="Ask for a simpler form, with fewer repetitions."
        )
    if delta.finish_reason == FinishReason.ERROR and delta.error == NO_TOKEN_LEFT:
        return InvalidRequest(NO_TOKEN_LEFT, code="no_token_left", fix="Allow more tokens, or forbid fewer words.")
    if delta.finish_reason == FinishReason.ERROR and (found := unavailable_of(delta.error or "", delta.retry_after_s)):
        return found
    if delta.finish_reason == FinishReason.ERROR and delta.retry_after_s is not None:
        return Overloaded(delta.error or "The request was refused.", retry_after_s=delta.retry_after_s)
    if delta.finish_reason == FinishReason.ERROR:
        return EngineFault(delta.error or "no reason given")
    if delta.finish_reason == FinishReason.ABORT:
        return EngineStopped("The request was aborted.")
    return None
