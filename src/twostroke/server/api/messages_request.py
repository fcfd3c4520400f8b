"""POST /v1/messages: Anthropic's request made into a chat request.

Knows: the Messages request.
Must not know: templates, token ids, answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from twostroke.server.api.model_list import asked_model
from twostroke.server.api.reasoning_effort import EFFORT
from twostroke.server.api.schema import ChatRequest, FunctionSpec, Tool, checked_chat, require_tokens
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, check_depth, decode
from twostroke.server.parts import ServerParts
from twostroke.server.prompts import call_of_chat, prompt_of_chat
from twostroke.types.errors import InvalidRequest

MAX_BLOCKS = 4096
PREFIX = "msg_"


class MessagesTool(msgspec.Struct, kw_only=True):
    """A tool that the client runs."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None


class Message(msgspec.Struct, kw_only=True):
    """One turn. content: text, or blocks of the kinds text, tool_use, tool_result and thinking."""

    role: str
    content: str | list[dict[str, Any]]


@body_kind
class CountRequest(msgspec.Struct, kw_only=True):
    """POST /v1/messages/count_tokens. Every optional field may be null; hints without a contract are ignored."""

    model: str | None = None
    messages: list[Message]
    system: str | list[dict[str, Any]] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None  # the older name of output_config.format
    context_management: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None  # this one and the two below are known, and not supported
    compaction: Any = None
    thread: Any = None
    parse_special: bool | None = None  # extension: as in chat completions


@body_kind
class MessagesRequest(CountRequest, kw_only=True):
    """POST /v1/messages."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    # extensions
    seed: int | None = None
    cache_salt: str | None = None


def messages_call(body: bytes, parts: ServerParts) -> Call:
    """Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, MessagesRequest)
    require_tokens(request.max_tokens, 1, "max_tokens")
    chat, prefill = _chat_of(request, parts)
    chat.max_tokens, chat.stop, chat.stream = request.max_tokens, request.stop_sequences, request.stream
    chat.temperature, chat.top_p, chat.top_k = request.temperature, request.top_p, request.top_k
    chat.seed, chat.cache_salt = request.seed, request.cache_salt
    return call_of_chat(checked_chat(chat, parts.limits.json_depth), parts, PREFIX, prefill=prefill, asked=request)


def count_tokens(body: bytes, parts: ServerParts) -> int:
    """Tokens of the prompt that these messages make. Raises InvalidRequest, HttpProblem."""
    chat, prefill = _chat_of(decode(body, CountRequest), parts)
    prompt = prompt_of_chat(checked_chat(chat, parts.limits.json_depth), parts, prefill)
    return parts.tokenizer.count_rendered(prompt.text, quoted=prompt.quoted)


def _chat_of(request: CountRequest, parts: ServerParts) -> tuple[ChatRequest, str]:
    """The chat request, and the text that the answer must begin with."""
    asked_model(request.model, parts)
    _check_depths(request, parts.limits.json_depth)
    _refuse_unsupported(request)
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": _texts(request.system, "system")})
    for place, message in enumerate(request.messages):
        _add_message(messages, message, f"messages[{place}]")
    prefill = ""
    if messages and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
        prefill = str(messages.pop()["content"])
        if prefill != prefill.rstrip():
            raise InvalidRequest("The last message ends with white space.", param="messages")
    choice, parallel = _tool_choice(request.tool_choice)
    chat = ChatRequest(
        model=request.model,
        messages=messages,
        tools=[_tool(tool, place) for place, tool in enumerate(request.tools or [])],
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=_response_format(request),
        chat_template_kwargs=_template_variables(request, parts),
        parse_special=request.parse_special,
    )
    return chat, prefill


def _check_depths(request: CountRequest, limit: int) -> None:
    for message in request.messages:
        if isinstance(message.content, list):
            if len(message.content) > MAX_BLOCKS:
                raise InvalidRequest(f"A message has more than {MAX_BLOCKS} blocks.", param="messages")
            check_depth(message.content, limit)
    groups = (request.thinking, request.output_config, request.output_format, request.context_management)
    for value in (request.system, request.tool_choice, *groups):
        if isinstance(value, (dict, list)):
            check_depth(value, limit)


def _refuse_unsupported(request: CountRequest) -> None:
    """Raises InvalidRequest for what the provider would do with the conversation, and this server does not.

    An edit that clears thoughts changes nothing: thoughts of earlier turns are left out here.
    """
    edits = (request.context_management or {}).get("edits") or ()
    kinds = [edit.get("type") if isinstance(edit, dict) else edit for edit in edits]
    asked = {
        "context_management": any(not str(kind).startswith("clear_thinking") for kind in kinds),
        "mcp_servers": bool(request.mcp_servers),
        **{name: getattr(request, name) is not None for name in ("container", "compaction", "thread")},
    }
    for name, wanted in asked.items():
        if wanted:
            raise InvalidRequest(f"{name} is not supported.", param=name, fix="Leave it out.", code="unsupported_value")


def _add_message(made: list[dict[str, Any]], message: Message, where: str) -> None:
    if message.role not in ("user", "assistant", "system"):
        raise InvalidRequest(
            f"{where}.role is {message.role[:60]!r}.", param=f"{where}.role", fix="Use user or assistant."
        )
    if isinstance(message.content, str):
        made.append({"role": message.role, "content": message.content})
        return
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for place, block in enumerate(message.content):
        _add_block(made, block, texts, calls, f"{where}.content[{place}]")
    if texts or calls or not message.content:
        entry: dict[str, Any] = {"role": message.role, "content": "\n".join(texts) if texts or not calls else None}
        made.append({**entry, "tool_calls": calls} if calls else entry)


def _add_block(
    made: list[dict[str, Any]], block: Mapping[str, Any], texts: list[str], calls: list[dict[str, Any]], where: str
) -> None:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        texts.append(block["text"])
    elif kind == "tool_use" and isinstance(block.get("name"), str):
        function = {"name": block["name"], "arguments": json.dumps(block.get("input") or {}, ensure_ascii=False)}
        calls.append({"id": block.get("id"), "type": "function", "function": function})
    elif kind == "tool_result":
        content = _texts(block.get("content") or "", f"{where}.content")
        made.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
    elif kind not in ("thinking", "redacted_thinking"):  # thoughts of earlier turns are left out, as templates do
        raise InvalidRequest(
            f"{where} is a block of the type {str(kind)[:60]!r}.", param=where, fix="This model reads text and tools."
        )


def _texts(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"{where} holds something that is no text.", param=where, fix="Send text blocks.")
    return "\n".join(str(text) for text in texts)


def _tool(tool: MessagesTool, place: int) -> Tool:
    if tool.type not in (None, "custom"):
        raise InvalidRequest(
            f"tools[{place}] is of the type {tool.type[:60]!r}.", param=f"tools[{place}]", fix="Use tools of your own."
        )
    spec = FunctionSpec(name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict)
    return Tool(type="function", function=spec)


def _tool_choice(value: dict[str, Any] | None) -> tuple[str | dict[str, Any] | None, bool | None]:
    """(chat's tool_choice, parallel_tool_calls)."""
    if value is None:
        return None, None
    parallel = False if value.get("disable_parallel_tool_use") is True else None
    kind = value.get("type")
    words = {"auto": "auto", "any": "required", "none": "none"}
    if isinstance(kind, str) and kind in words:
        return words[kind], parallel
    if kind == "tool":
        return {"type": "function", "function": {"name": value.get("name")}}, parallel
    raise InvalidRequest(
        f"tool_choice.type is {str(kind)[:60]!r}.", param="tool_choice", fix="Use auto, any, tool or none."
    )


def _response_format(request: CountRequest) -> dict[str, Any] | None:
    asked = (request.output_config or {}).get("format")
    asked = request.output_format if asked is None else asked
    if asked is None:
        return None
    if not isinstance(asked, dict) or asked.get("type") != "json_schema":
        name = "output_config" if asked is not request.output_format else "output_format"
        raise InvalidRequest(f"{name} names a format that is no json_schema.", param=name)
    return {"type": "json_schema", "json_schema": {"schema": asked.get("schema")}}


def _template_variables(request: CountRequest, parts: ServerParts) -> dict[str, Any]:
    """`thinking` and `output_config.effort` as the template's own variables; left out where it has none of them."""
    known = frozenset() if parts.template is None else parts.template.variables
    found: dict[str, Any] = {}
    if request.thinking is not None:
        found["enable_thinking"] = request.thinking.get("type") != "disabled"
    if isinstance(effort := (request.output_config or {}).get("effort"), str):
        found[EFFORT] = effort
    return {name: value for name, value in found.items() if name in known}
