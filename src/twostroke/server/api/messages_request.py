"""POST /v1/messages: Anthropic's request made into a chat request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from twostroke.server.api.changed.kept_tools import AskedTool, FunctionSpec
from twostroke.server.api.fields.cache_marks import FIELD, check_marks, marks_all
from twostroke.server.api.fields.disk_wish import longest_ttl_s, with_disk_s
from twostroke.server.api.history.blocks import ROLES, chat_messages
from twostroke.server.api.model_list import asked_model
from twostroke.server.api.schema import ChatRequest, CheckedChat, checked_chat, in_words_of, require_tokens
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, check_depth, decode
from twostroke.server.prompts import call_of_chat, prompt_of_chat
from twostroke.server.serving import Serving
from twostroke.text.history.parts import text_of
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes, named

MAX_BLOCKS = 4096
PREFIX = "msg_"


class MessagesTool(msgspec.Struct, kw_only=True):
    """A tool in Anthropic's form. The client runs tools without a type and those of the type `custom`. A tool of any
    other type is hosted: Anthropic's server would run it. function: OpenAI's form, which some clients send here too."""

    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None
    function: FunctionSpec | None = None


class Message(msgspec.Struct, kw_only=True):
    """One message of a conversation. content: text, or blocks (history/blocks.py)."""

    role: str
    content: Any = None


@body_kind
class CountRequest(msgspec.Struct, kw_only=True):
    """The body of POST /v1/messages/count_tokens: a conversation whose tokens are counted. Every optional field may be
    null; fields that are only hints are ignored."""

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
    container: Any = None  # `container` and the two fields below are known, but not supported
    compaction: Any = None
    thread: Any = None
    cache_control: dict[str, Any] | None = None  # a cache mark at the end of the prompt
    parse_special: bool | None = None  # an extension, as in chat completions


@body_kind
class MessagesRequest(CountRequest, kw_only=True):
    """The body of POST /v1/messages, which asks for an answer to a conversation."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    # extensions
    seed: int | None = None
    cache_salt: str | None = None
    priority: int | None = None


def messages_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of POST /v1/messages. Returns its prompt for the engine, and how it is to be answered. Raises
    InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request, notes = decode(body, MessagesRequest), Notes()
    require_tokens(request.max_tokens, 1, "max_tokens")
    chat, prefill = _chat_of(request, serving, notes)
    chat.max_tokens, chat.stop, chat.stream = request.max_tokens, request.stop_sequences, request.stream
    chat.temperature, chat.top_p, chat.top_k = request.temperature, request.top_p, request.top_k
    chat.seed, chat.cache_salt, chat.priority = request.seed, request.cache_salt, request.priority
    try:
        call = call_of_chat(_checked(chat, serving, notes), serving, PREFIX, prefill=prefill, asked=request)
    except InvalidRequest as error:
        raise in_words_of(error, _OWN_WORDS) from None
    stay_s = longest_ttl_s(marks_of(request))
    return with_disk_s(call, stay_s) if stay_s else call


_OWN_WORDS = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
}
"""Anthropic's names of fields, by their names in chat completions. An error about a field uses Anthropic's name."""


def marks_of(request: CountRequest) -> Sequence[Mapping[str, Any]]:
    """Returns all cache_control marks of the request. Raises InvalidRequest."""
    groups = [request.system, *(each.content for each in request.messages), [{FIELD: request.cache_control}]]
    return check_marks(groups)


def caches_all(request: MessagesRequest) -> bool:
    """Returns True when a mark asks that the whole prompt be cached."""
    return request.cache_control is not None or (bool(request.messages) and marks_all(request.messages[-1].content))


def count_tokens(body: bytes, serving: Serving) -> tuple[int, tuple[str, ...]]:
    """Returns the number of tokens of the prompt that these messages make, and the notes of what was changed in them.

    Raises InvalidRequest, HttpProblem.
    """
    notes = Notes()
    chat, prefill = _chat_of(decode(body, CountRequest), serving, notes)
    prompt = prompt_of_chat(_checked(chat, serving, notes), serving, prefill)
    return serving.tokenizer.count_rendered(prompt.text, quoted=prompt.quoted), notes.texts


def _checked(chat: ChatRequest, serving: Serving, notes: Notes) -> CheckedChat:
    return checked_chat(chat, serving.caps.json_depth, notes)


def _chat_of(request: CountRequest, serving: Serving, notes: Notes) -> tuple[ChatRequest, str]:
    """Returns the chat request, and the text that the answer must begin with."""
    asked_model(request.model, serving)
    _check_depths(request, serving.caps.json_depth)
    _refuse_unsupported(request)
    longest_ttl_s(marks_of(request))
    if request.messages and (role := request.messages[-1].role) not in ROLES:
        raise InvalidRequest(f"The last message has the role {named(role)!r}.", param="messages", fix="Use user.")
    system = [{"role": "system", "content": request.system}] if request.system else []
    messages = [*system, *chat_messages(((each.role, each.content) for each in request.messages), notes)]
    prefill = ""
    if messages and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
        prefill = text_of(messages.pop()["content"], "messages", notes, strict=False) or ""
        if prefill != prefill.rstrip():
            raise InvalidRequest("The last message ends with white space.", param="messages")
    choice, parallel = _tool_choice(request.tool_choice)
    chat = ChatRequest(
        model=request.model,
        messages=messages,
        tools=[_tool(tool) for tool in request.tools or []],
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=_response_format(request),
        thinking=request.thinking,
        include_reasoning=_shows_thoughts(request.thinking or {}),
        reasoning_effort=_effort(request),
        parse_special=request.parse_special,
    )
    return chat, prefill


def _effort(request: CountRequest) -> str | None:
    effort = (request.output_config or {}).get("effort")
    if effort is not None and not isinstance(effort, str):
        raise InvalidRequest("output_config.effort is no word.", param="output_config")
    return effort


def _shows_thoughts(thinking: Mapping[str, Any]) -> bool:
    display = thinking.get("display")
    if display not in (None, "summarized", "omitted"):
        raise InvalidRequest(
            f"thinking.display is {named(display)!r}.", param="thinking", fix="Use summarized or omitted."
        )
    return display != "omitted"


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
    """Raises InvalidRequest for fields that this server does not support, such as edits of the conversation or MCP
    servers.

    An edit that clears thoughts changes nothing: the template decides which thoughts of earlier turns a model sees.
    """
    edits = (request.context_management or {}).get("edits") or []
    listed = edits if isinstance(edits, list) else [edits]
    kinds = [edit.get("type") if isinstance(edit, dict) else edit for edit in listed]
    asked = {
        "context_management": any(not str(kind).startswith("clear_thinking") for kind in kinds),
        "mcp_servers": bool(request.mcp_servers),
        **{name: getattr(request, name) is not None for name in ("container", "compaction", "thread")},
    }
    for name, wanted in asked.items():
        if wanted:
            raise InvalidRequest(f"{name} is not supported.", param=name, fix="Leave it out.", code="unsupported_value")


def _tool(tool: MessagesTool) -> AskedTool:
    """Returns the tool as all APIs have it. A tool without a type, or of the type custom, is a function here."""
    function = tool.type in (None, "custom")
    return AskedTool(**{**msgspec.structs.asdict(tool), "type": "function" if function else tool.type})


def _tool_choice(value: dict[str, Any] | None) -> tuple[str | dict[str, Any] | None, bool | None]:
    """Returns (chat's tool_choice, parallel_tool_calls)."""
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
