"""POST /v1/responses: OpenAI's Responses request made into a chat request.

The server keeps no answers, so `previous_response_id`, `conversation` and `background` are refused, and `store` is
answered with false.

Knows: the Responses request.
Must not know: templates, token ids, answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from twostroke.server.api.schema import (
    REST,
    ChatRequest,
    FunctionSpec,
    StreamOptions,
    Tool,
    checked_chat,
    require_tokens,
)
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, check_depth, decode
from twostroke.server.parts import ServerParts
from twostroke.server.prompts import call_of_chat
from twostroke.types.errors import InvalidRequest

MAX_ITEMS = 4096
TEXT_PARTS = ("input_text", "output_text", "text")


class ResponseTool(msgspec.Struct, kw_only=True):
    """A function, without the wrapper that chat completions put around it."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct, kw_only=True):
    """The form of the answer."""

    format: dict[str, Any] | None = None
    verbosity: Any = None


@body_kind
class ResponsesRequest(msgspec.Struct, kw_only=True):
    """Every optional field may be null. Hints without a contract (metadata, user ...) are taken and repeated."""

    model: str | None = None
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    truncation: str | None = None
    include: list[str] | None = None
    store: bool | None = None
    # extensions
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    cache_salt: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parse_special: bool | None = None
    # known, not supported
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    max_tool_calls: Any = None
    context_management: Any = None
    moderation: Any = None


NOT_SUPPORTED = (
    *("previous_response_id", "conversation", "prompt", "max_tool_calls"),
    *("context_management", "moderation"),
)
_SAME = (
    "model temperature top_p stream top_k min_p repetition_penalty seed stop ignore_eos cache_salt "
    "chat_template_kwargs parallel_tool_calls parse_special"
).split()


def responses_call(body: bytes, parts: ServerParts) -> Call:
    """Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, ResponsesRequest)
    _check(request, parts.limits.json_depth)
    wants_logprobs = "message.output_text.logprobs" in (request.include or ())
    chat = ChatRequest(
        messages=_messages(request),
        max_completion_tokens=request.max_output_tokens,
        tools=[_tool(tool, place) for place, tool in enumerate(request.tools or [])],
        tool_choice=_tool_choice(request.tool_choice),
        response_format=_response_format(request.text),
        verbosity=None if request.text is None else request.text.verbosity,
        reasoning_effort=_effort(request.reasoning),
        logprobs=wants_logprobs or None,
        top_logprobs=request.top_logprobs if wants_logprobs else None,
        **{name: getattr(request, name) for name in _SAME},
    )
    try:
        checked_chat(chat, parts.limits.json_depth)
        return call_of_chat(chat, parts, "resp_", asked=request)
    except InvalidRequest as error:
        error.param = _RENAMED.get(error.param or "", error.param)
        raise


_RENAMED = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
}


def _check(request: ResponsesRequest, depth_limit: int) -> None:
    require_tokens(request.max_output_tokens, 1, "max_output_tokens", REST)
    for name in NOT_SUPPORTED:
        if getattr(request, name) is not None:
            raise InvalidRequest(f"{name} is not supported.", param=name, fix="Leave it out.", code="unsupported_value")
    if request.background:
        raise InvalidRequest("background is not supported.", param="background", fix="Leave it out.")
    if request.truncation not in (None, "disabled"):
        raise InvalidRequest("truncation is only supported as disabled.", param="truncation")
    if request.top_logprobs is not None and not 0 <= request.top_logprobs <= 20:
        raise InvalidRequest("top_logprobs must be between 0 and 20.", param="top_logprobs")
    for name in ("input", "metadata", "reasoning"):
        value = getattr(request, name)
        if isinstance(value, (dict, list)):
            check_depth(value, depth_limit)
    if len(request.input) > MAX_ITEMS and not isinstance(request.input, str):
        raise InvalidRequest(f"input has more than {MAX_ITEMS} items.", param="input")
    if not request.input:
        raise InvalidRequest("input is empty.", param="input", fix="Send some text.")


def _messages(request: ResponsesRequest) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if request.instructions:
        made.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        return [*made, {"role": "user", "content": request.input}]
    for place, item in enumerate(request.input):
        _add_item(made, item, f"input[{place}]")
    return made


def _add_item(made: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        made.append({"role": item.get("role"), "content": _content(item.get("content"), f"{where}.content")})
    elif kind == "function_call":
        call = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        entry = {"id": item.get("call_id"), "type": "function", "function": call}
        if made and made[-1]["role"] == "assistant":  # text and calls of one turn are one message
            made[-1].setdefault("tool_calls", []).append(entry)
        else:
            made.append({"role": "assistant", "content": None, "tool_calls": [entry]})
    elif kind == "function_call_output":
        output = _content(item.get("output"), f"{where}.output")
        made.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
    elif kind != "reasoning":  # what was thought in earlier turns is left out, as the templates do
        raise InvalidRequest(f"{where} is of the type {str(kind)[:60]!r}, which is not supported.", param=where)


def _content(value: Any, where: str) -> Any:
    """Text, or the texts of parts; the chat template's room refuses anything else."""
    if not isinstance(value, list):
        return value
    for part in value:
        if not isinstance(part, dict) or part.get("type") not in TEXT_PARTS:
            raise InvalidRequest(f"{where} holds a part that is no text.", param=where, fix="Send text parts.")
    return [{"type": "text", "text": part.get("text")} for part in value]


def _tool(tool: ResponseTool, place: int) -> Tool:
    if tool.type != "function" or tool.name is None:
        raise InvalidRequest(
            f"tools[{place}] is no function with a name.", param=f"tools[{place}]", fix="Functions are the only tools."
        )
    spec = FunctionSpec(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type="function", function=spec)


def _tool_choice(value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if isinstance(value, dict):
        return {"type": value.get("type"), "function": {"name": value.get("name")}}
    return value


def _effort(reasoning: dict[str, Any] | None) -> str | None:
    found = None if reasoning is None else reasoning.get("effort")
    if found is not None and not isinstance(found, str):
        raise InvalidRequest("reasoning.effort is no word.", param="reasoning.effort")
    return found


def _response_format(text: TextOptions | None) -> dict[str, Any] | None:
    """The schema lies one level higher than in chat completions."""
    asked = None if text is None else text.format
    if asked is not None and asked.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": asked.get("name"), "schema": asked.get("schema")}}
    return asked
