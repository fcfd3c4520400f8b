"""Translates fields of other APIs in a chat request into the fields of chat completions.

Cursor sends the body of a Responses request to chat completions: `input`, `instructions`, `max_output_tokens`, `text`.
OpenRouter's clients send `reasoning`, vLLM's `include_reasoning`, Qwen's `enable_thinking`, Ollama's `think`. Two
fields that contradict each other are refused.
"""

from __future__ import annotations

from typing import Any

from twostroke.server.api.history.items import conversation
from twostroke.server.api.schema import ChatRequest
from twostroke.server.gate.decode import check_depth
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes


def in_chat_words(request: ChatRequest, depth_limit: int, notes: Notes) -> None:
    """Fill the fields of chat completions from the request's fields of other APIs. Raises InvalidRequest that names a
    field, HttpProblem (400) for an `input` that is nested too deep."""
    if request.input is not None or request.instructions:
        check_depth(request.input or [], depth_limit)
        _fill_messages(request, notes)
    if not request.messages:
        raise InvalidRequest("messages is empty.", param="messages", fix="Send at least one message.")
    if request.max_output_tokens is not None:
        _fill(request, "max_completion_tokens", request.max_output_tokens, "max_output_tokens")
    if request.text is not None:
        for ours, theirs in (("response_format", "format"), ("verbosity", "verbosity")):
            _fill(request, ours, request.text.get(theirs), "text")
    if isinstance(request.reasoning, dict):
        _fill_reasoning(request, request.reasoning)
    elif request.reasoning is not None:
        _think(request, request.reasoning, "reasoning")
    if request.enable_thinking is not None:
        _think(request, request.enable_thinking, "enable_thinking")
    if isinstance(request.think, str):
        _fill(request, "reasoning_effort", request.think, "think")
    elif request.think is not None:
        _think(request, request.think, "think")


def _fill_messages(request: ChatRequest, notes: Notes) -> None:
    if request.input is None:
        request.messages = [*conversation(request.instructions, None, notes), *request.messages]
        return
    if request.messages:
        raise InvalidRequest("The request has both messages and input.", param="input", fix="Send one of them.")
    request.messages = conversation(request.instructions, request.input, notes)


def _fill_reasoning(request: ChatRequest, asked: dict[str, Any]) -> None:
    effort, budget, on, hidden = (asked.get(name) for name in ("effort", "max_tokens", "enabled", "exclude"))
    for name, value, kind in (("effort", effort, str), ("enabled", on, bool), ("exclude", hidden, bool)):
        if value is not None and not isinstance(value, kind):
            raise InvalidRequest(f"reasoning.{name} is wrong.", param=f"reasoning.{name}")
    _fill(request, "reasoning_effort", effort, "reasoning")
    if on is not None:
        _think(request, on, "reasoning")
    if budget is not None:
        request.thinking = {"budget_tokens": budget, **(request.thinking or {})}
    if hidden:
        request.include_reasoning = False


def _think(request: ChatRequest, on: bool, theirs: str) -> None:
    kind = "enabled" if on else "disabled"
    said = request.thinking or {}
    if (said.get("type") == "disabled") is on and said.get("type") is not None:
        raise _contradiction(theirs, "thinking")
    request.thinking = {"type": kind, **said}


def _fill(request: ChatRequest, ours: str, value: Any, theirs: str) -> None:
    before = getattr(request, ours)
    if value is None or before == value:
        return
    if before is not None:
        raise _contradiction(theirs, ours)
    setattr(request, ours, value)


def _contradiction(theirs: str, ours: str) -> InvalidRequest:
    return InvalidRequest(f"{theirs} and {ours} have different values.", param=theirs, fix="Send one of them.")
