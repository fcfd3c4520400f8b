"""POST /v1/responses: OpenAI's Responses request made into a chat request.

Without a folder for stored work the server keeps no answers. `previous_response_id`, `conversation` and `background`
are then refused, and the answer has `store` false.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from twostroke.server.api.changed.kept_tools import AskedTool, FunctionSpec
from twostroke.server.api.changed.truncated import Messages, room_for, shortened
from twostroke.server.api.fields.sampler_fields import AskedSamplers
from twostroke.server.api.history.items import conversation
from twostroke.server.api.model_list import asked_model
from twostroke.server.api.schema import REST, ChatRequest, StreamOptions, checked_chat, in_words_of, require_tokens
from twostroke.server.api.shapes.late_refusal import StreamRefused
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, check_depth, decode
from twostroke.server.prompts import call_of_chat, prompt_of_chat
from twostroke.server.serving import Serving
from twostroke.types.errors import ContextLengthExceeded, InvalidRequest
from twostroke.types.notes import Notes
from twostroke.types.sampling.sampler_fields import FIELD_NAMES

MAX_ITEMS = 4096
OF_ITEMS = {"object": "response.input_tokens"}
"""The keys of the answer of /v1/responses/input_tokens, without the count."""


class ResponseTool(msgspec.Struct, kw_only=True):
    """A function or another tool in the form of Responses, which has the tool's fields in the tool itself. format: the
    format of a custom tool. function: the same fields as chat completions wrap them; some clients send this form
    too."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: Any = None
    function: FunctionSpec | None = None


class TextOptions(msgspec.Struct, kw_only=True):
    """What the text of an answer should be like. format: plain text, JSON or a JSON schema. verbosity: how detailed it
    is."""

    format: dict[str, Any] | None = None
    verbosity: Any = None


@body_kind
class ResponsesRequest(AskedSamplers, kw_only=True):
    """The body of POST /v1/responses. Every optional field may be null. Fields that are only hints (metadata, user ...)
    are accepted and repeated in the answer."""

    model: str | None = None
    input: str | list[dict[str, Any]] | None = None
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
    priority: int | None = None
    include_reasoning: bool | None = None
    # Fields of stored work. Without a folder for stored work only null and false pass.
    previous_response_id: Any = None
    background: bool | None = None
    conversation: str | dict[str, Any] | None = None
    # These fields are known, but not supported.
    prompt: Any = None
    max_tool_calls: Any = None
    context_management: Any = None
    moderation: Any = None


NOT_SUPPORTED = ("prompt", "max_tool_calls", "context_management", "moderation")
_SAME = (
    "model temperature top_p stream top_k min_p repetition_penalty seed stop ignore_eos cache_salt "
    "chat_template_kwargs parallel_tool_calls parse_special priority include_reasoning"
).split() + list(FIELD_NAMES)


def responses_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of POST /v1/responses. Returns its prompt for the engine, and how it is to be answered. Raises
    InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request, notes = decode(body, ResponsesRequest), Notes()
    _check(request, serving.caps.json_depth)
    if serving.stored is None or request.store is False:
        _check_nothing_kept(request, serving)
    chat = _chat_of(request, notes)
    try:
        return _call(chat, request, serving, notes)
    except ContextLengthExceeded as error:
        shorter = _truncated(chat, request, serving) if request.truncation == "auto" else None
        if shorter is not None:
            return shorter
        error.param = "input"
        if request.stream and error.prompt_tokens:
            raise StreamRefused(asked_model(request.model, serving), error) from None
        raise
    except InvalidRequest as error:
        raise _in_own_words(error, request) from None


def input_tokens(body: bytes, serving: Serving) -> tuple[int, tuple[str, ...]]:
    """Reads the body of POST /v1/responses/input_tokens. Returns the number of tokens of the prompt that these items
    make, and the notes of what was changed in them. Raises InvalidRequest, HttpProblem."""
    request, notes = decode(body, ResponsesRequest), Notes()
    _check(request, serving.caps.json_depth)
    for name in ("previous_response_id", "conversation"):
        if getattr(request, name) is not None:
            raise InvalidRequest(f"{name} is not counted.", param=name, fix="Send the whole conversation as input.")
    try:
        prompt = prompt_of_chat(checked_chat(_chat_of(request, notes), serving.caps.json_depth, notes), serving)
    except InvalidRequest as error:
        raise _in_own_words(error, request) from None
    return serving.tokenizer.count_rendered(prompt.text, quoted=prompt.quoted), notes.texts


def _chat_of(request: ResponsesRequest, notes: Notes) -> ChatRequest:
    wants_logprobs = "message.output_text.logprobs" in (request.include or ())
    return ChatRequest(
        messages=_messages(request, notes),
        max_completion_tokens=request.max_output_tokens,
        tools=[AskedTool(**msgspec.structs.asdict(tool)) for tool in request.tools or []],
        tool_choice=request.tool_choice,
        response_format=None if request.text is None else request.text.format,
        verbosity=None if request.text is None else request.text.verbosity,
        reasoning_effort=_effort(request.reasoning),
        logprobs=wants_logprobs or None,
        top_logprobs=request.top_logprobs if wants_logprobs else None,
        **{name: getattr(request, name) for name in _SAME},
    )


def _in_own_words(error: InvalidRequest, request: ResponsesRequest) -> InvalidRequest:
    error.param = _renamed(in_words_of(error, _RENAMED).param or "", request.input)
    return error


def _call(chat: ChatRequest, request: ResponsesRequest, serving: Serving, notes: Notes) -> Call:
    own = msgspec.structs.replace(chat)  # a check fills fields, and a conversation may be checked several times
    return call_of_chat(checked_chat(own, serving.caps.json_depth, notes), serving, "resp_", asked=request)


def _truncated(chat: ChatRequest, request: ResponsesRequest, serving: Serving) -> Call | None:
    """Returns the call for the longest end of the conversation that leaves room for an answer; None when none does."""
    most = serving.context_tokens - room_for(request.max_output_tokens, serving.context_tokens)

    def attempt(messages: Messages) -> Call | None:
        try:
            call = _call(msgspec.structs.replace(chat, messages=list(messages)), request, serving, Notes())
        except ContextLengthExceeded:
            return None
        return call if call.num_prompt_tokens <= most else None

    found = shortened(chat.messages, attempt)
    if found is None:
        return None
    count, call = found
    return replace(call, warnings=(*call.warnings, f"the {count} earliest messages were left out (truncation auto)"))


def _renamed(param: str, items: str | list[dict[str, Any]] | None) -> str | None:
    """Returns the client's name of a field, for an error that names it as chat completions does. items: the request's
    `input`. A field of a message is reported for the last message in it."""
    name, bracket, rest = param.partition("[")
    if name != "messages" or not bracket or not isinstance(items, list):
        return _RENAMED.get(name, param or None)
    place = max(place for place, item in enumerate(items) if item.get("type", "message") == "message")
    return f"input[{place}]{rest.partition(']')[2]}"


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
    if request.truncation not in (None, "disabled", "auto"):
        raise InvalidRequest("truncation must be auto or disabled.", param="truncation")
    if request.top_logprobs is not None and not 0 <= request.top_logprobs <= 20:
        raise InvalidRequest("top_logprobs must be between 0 and 20.", param="top_logprobs")
    for name in ("input", "metadata", "reasoning"):
        value = getattr(request, name)
        if isinstance(value, (dict, list)):
            check_depth(value, depth_limit)
    if isinstance(request.input, list) and len(request.input) > MAX_ITEMS:
        raise InvalidRequest(f"input has more than {MAX_ITEMS} items.", param="input")


def _check_nothing_kept(request: ResponsesRequest, serving: Serving) -> None:
    """Raises InvalidRequest for a field that needs stored responses. Called for a request whose response is not
    stored."""
    for name in ("previous_response_id", "background", "conversation"):
        if getattr(request, name) not in (None, False):
            raise InvalidRequest(
                f"{name} is not supported without stored responses.",
                param=name,
                why="The request says store: false." if serving.stored else "This server keeps no responses.",
                fix="Leave store out." if serving.stored else "Start the server with --stored-work FOLDER.",
                code="unsupported_value",
            )


def _messages(request: ResponsesRequest, notes: Notes) -> list[dict[str, Any]]:
    """Returns the chat messages of the request. An empty input is a user's empty message when there are no instructions
    either. Raises InvalidRequest where neither was sent: then the client may have sent chat messages to this path."""
    messages = conversation(request.instructions, request.input, notes)
    if not messages and request.input is None:
        fix = "Send a text or a list of items. The messages of a chat are for /v1/chat/completions."
        raise InvalidRequest("input is missing.", param="input", fix=fix)
    return messages or [{"role": "user", "content": ""}]


def _effort(reasoning: dict[str, Any] | None) -> str | None:
    found = None if reasoning is None else reasoning.get("effort")
    if found is not None and not isinstance(found, str):
        raise InvalidRequest("reasoning.effort is no word.", param="reasoning.effort")
    return found
