"""The requests that clients may send: typed, with hard limits, read and checked before any work.

Fields of OpenAI's API that this server cannot support are declared too, so that asking for them is an error and sending
their neutral value is not. Fields that are not declared are ignored, and the answer names them (field_check.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from twostroke.server.api.changed.kept_tools import AskedTool, FunctionSpec, Tool, kept_tools
from twostroke.server.api.fields.other_engines import NO_LIMIT, in_our_fields
from twostroke.server.api.fields.sampler_fields import AskedSamplers
from twostroke.server.gate.decode import body_kind, check_depth, decode
from twostroke.text.history.thoughts import NAMES, with_thought
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes

MAX_PROMPTS = 64
MAX_CHAT_TOP_LOGPROBS = 20
MAX_COMPLETION_LOGPROBS = 5
MAX_SALT_CHARACTERS = 256
MAX_STOP_TOKEN_IDS = 1024
MAX_TOOLS = 1024
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
MAX_PRIORITY = 100
REST = "Leave it out for all that the context has room for."
"""The advice in an error about a limit on the answer's tokens that is too small: without the limit, an answer may use
the whole rest of the context."""


class StreamOptions(msgspec.Struct):
    """How the token counts are sent in a stream. include_usage: send the token counts in a last chunk of their own.
    continuous_usage_stats: send the counts so far in each chunk, too."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(AskedSamplers, kw_only=True):
    """The fields that chat and completion requests share. Every optional field may be null."""

    model: str | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # extensions
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    repetition_window: int | None = None
    cache_salt: str | None = None
    priority: int | None = None
    speculate: str | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    ttft_s: float | None = None
    itl_s: float | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None  # a llama.cpp field: adds `timings` at the end of an answer
    parse_special: bool | None = None  # reads control tokens; default false for chats, true for prompts (SECURITY.md)
    # These fields are llama.cpp's (other_engines.py).
    n_predict: int | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    # These fields set the form of the answer (grammar.py).
    response_format: Any = None
    grammar: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    # These fields are known, but not supported: only neutral values pass (NEUTRAL).
    guided_whitespace_pattern: Any = None
    prompt_logprobs: Any = None
    prompt_embeds: Any = None
    truncate_prompt_tokens: Any = None
    include_stop_str_in_output: Any = None
    skip_special_tokens: Any = None
    add_special_tokens: Any = None


@body_kind
class ChatRequest(GenerationRequest, kw_only=True):
    """The body of POST /v1/chat/completions. `messages` are checked later, when the chat template is rendered."""

    messages: list[dict[str, Any]] = []
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[AskedTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[FunctionSpec] | None = None  # this field and the next one: see legacy_functions.py
    function_call: str | dict[str, Any] | None = None
    audio: Any = None
    modalities: Any = None
    web_search_options: Any = None
    chat_template: Any = None
    reasoning_effort: str | None = None  # sets variables of the template: see reasoning_effort.py
    thinking: dict[str, Any] | None = None
    include_reasoning: bool | None = None  # False leaves the thoughts out of the answer
    moderation: Any = None
    verbosity: Any = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    # These fields are other APIs' (changed/chat_words.py).
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    text: dict[str, Any] | None = None
    reasoning: bool | dict[str, Any] | None = None
    enable_thinking: bool | None = None
    think: bool | str | None = None


class MediaPrompt(msgspec.Struct):
    """A text with images, as clients of llama.cpp send it. multimodal_data: files in base64, one for each mark
    <__media__> in the text, in order."""

    prompt_string: str
    multimodal_data: list[str] = []


@body_kind
class CompletionRequest(GenerationRequest, kw_only=True):
    """The body of POST /v1/completions. prompt: a text, texts, token ids, lists of token ids, or a text with images."""

    prompt: str | list[str | int | list[int]] | MediaPrompt
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None


_FLAT = (
    *("logit_bias", "stop", "stop_token_ids", "allowed_token_ids", "bad_words", "prompt", "samplers"),
    "dry_sequence_breakers",
)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "add_special_tokens": (True,),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    **{
        name: ()
        for name in (
            "guided_whitespace_pattern",
            "prompt_logprobs",
            "prompt_embeds",
            "truncate_prompt_tokens",
            "audio",
            "web_search_options",
            "chat_template",
            "moderation",
        )
    },
}


class CheckedChat(msgspec.Struct, frozen=True):
    """A chat request within all limits, with the tools that the model may be offered. notes: the texts that tell the
    client what was left out."""

    request: ChatRequest
    tools: list[Tool]
    notes: Notes


def checked_chat(request: ChatRequest, depth_limit: int, notes: Notes) -> CheckedChat:
    """Checks all limits of a chat request from any API. Raises InvalidRequest or HttpProblem (400)."""
    _check_shared(request, depth_limit)
    kept = kept_tools(request.tools or (), request.tool_choice, notes)
    request.tool_choice = kept.choice
    _check_tools(kept.tools, depth_limit)
    if request.n is None:
        request.n = 1
    require_tokens(request.max_tokens, 1, "max_tokens" if request.n_predict is None else "n_predict", REST)
    if request.max_completion_tokens == NO_LIMIT:
        request.max_completion_tokens = None
    if request.max_completion_tokens is not None:
        require_tokens(request.max_completion_tokens, 1, "max_completion_tokens", REST)
        request.max_tokens = request.max_completion_tokens
    if request.top_logprobs is not None:
        if not 0 <= request.top_logprobs <= MAX_CHAT_TOP_LOGPROBS:
            raise InvalidRequest(
                f"top_logprobs must be between 0 and {MAX_CHAT_TOP_LOGPROBS}, not {request.top_logprobs}.",
                param="top_logprobs",
            )
        if request.top_logprobs and not request.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    _check_continued(request)
    return CheckedChat(request, kept.tools, notes)


def require_tokens(count: int | None, least: int, name: str, fix: str = "Send a larger number.") -> None:
    """Raises InvalidRequest when `count`, the most tokens of an answer, is below `least`. count: None when the request
    does not have the field."""
    if count is not None and count < least:
        raise InvalidRequest(
            f"{name} must be at least {least}, not {count}.",
            param=name,
            why="It is the most tokens that an answer may have." + ("" if least else " 0 computes the prompt alone."),
            fix=fix,
        )


def in_words_of(error: InvalidRequest, names: Mapping[str, str]) -> InvalidRequest:
    """Renames the field in an error of a chat request, for an API that has another name for this field; the beginning
    of the error's text is changed, too. names: maps fields of chat completions to the other API's."""
    ours = error.param or ""
    if ours in names:
        error.param = names[ours]
        if error.what.startswith(ours):
            error.what = names[ours] + error.what.removeprefix(ours)
    return error


def _check_continued(request: ChatRequest) -> None:
    """Checks continue_final_message and add_generation_prompt. One of them must be true, so that the prompt ends where
    an answer begins or goes on. continue_final_message needs a last message of the assistant with a text."""
    if not request.continue_final_message:
        if request.add_generation_prompt is False:
            raise InvalidRequest(
                "add_generation_prompt: false is only supported with continue_final_message: true.",
                param="add_generation_prompt",
                fix="Leave it out, or use /v1/completions.",
            )
        return
    if request.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt cannot both be true.",
            param="continue_final_message",
            why="An answer is either continued or begun.",
            fix="Send add_generation_prompt: false, or leave it out.",
        )
    last = request.messages[-1] if request.messages else {}
    said = any(with_thought(last).get(name) for name in ("content", NAMES[0]))
    if last.get("role") != "assistant" or not said or last.get("tool_calls"):
        raise InvalidRequest(
            "continue_final_message needs a last message of the assistant with a text.",
            param="messages",
            fix="End the messages with the answer to go on with, or leave continue_final_message out.",
        )


def read_completion(body: bytes, depth_limit: int) -> CompletionRequest:
    """Decodes and checks a completion request. Raises InvalidRequest or HttpProblem (400)."""
    return checked_completion(decode(body, CompletionRequest), depth_limit)


def checked_completion(request: CompletionRequest, depth_limit: int) -> CompletionRequest:
    """Checks all limits of a completion request from any API. Raises InvalidRequest or HttpProblem (400)."""
    _check_shared(request, depth_limit)
    if request.n is None:
        request.n = 1
    require_tokens(request.max_tokens, 0, "max_tokens", "Send -1 for all that the context has room for.")
    if request.logprobs is not None and not 0 <= request.logprobs <= MAX_COMPLETION_LOGPROBS:
        raise InvalidRequest(
            f"logprobs must be between 0 and {MAX_COMPLETION_LOGPROBS}, not {request.logprobs}.", param="logprobs"
        )
    return request


def _check_shared(request: GenerationRequest, depth_limit: int) -> None:
    in_our_fields(request)
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if value is None:  # true for most fields of most requests
            continue
        if isinstance(value, (dict, list)) and name not in _FLAT:
            check_depth(value, depth_limit)
        neutral = NEUTRAL.get(name)
        if neutral is not None and not any(_same(value, item) for item in neutral):
            raise InvalidRequest(f"{name} is not supported.", param=name, fix="Leave it out.", code="unsupported_value")
    if request.n is not None and not 1 <= request.n <= 128:
        raise InvalidRequest(f"n must be between 1 and 128, not {request.n}.", param="n")
    if request.stop_token_ids is not None and len(request.stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(f"stop_token_ids has more than {MAX_STOP_TOKEN_IDS} entries.", param="stop_token_ids")
    if request.cache_salt is not None and len(request.cache_salt) > MAX_SALT_CHARACTERS:
        raise InvalidRequest(f"cache_salt is longer than {MAX_SALT_CHARACTERS} characters.", param="cache_salt")
    if request.priority is not None and not 0 <= request.priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"priority must be between 0 (interactive) and {MAX_PRIORITY} (batch work: 1 and above).", param="priority"
        )


def _check_tools(tools: list[Tool], depth_limit: int) -> None:
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"{len(tools)} tools; at most {MAX_TOOLS} are read.", param="tools")
    for tool in tools:
        if not _TOOL_NAME.fullmatch(tool.function.name):
            raise InvalidRequest(
                f"A tool cannot have the name {tool.function.name[:60]!r}.",
                param="tools",
                fix="Use 1 to 128 letters, digits, dots, dashes and underscores.",
            )
        check_depth(tool.function.parameters or {}, depth_limit)


def _same(value: Any, neutral: Any) -> bool:
    """Returns True for equal values of the same type, so that 1 and True are different."""
    return type(value) is type(neutral) and value == neutral
