"""What clients may send: typed requests with hard caps, read and checked before any work.

Fields of OpenAI's API that this server cannot honour are declared too, so that asking for them is an error and sending
their neutral value is not. Hints without a contract (user, metadata, reasoning_effort ...) and unknown fields are
ignored.

Knows: OpenAI's request shapes, the extensions that clients of other engines send.
Must not know: token ids' meaning, engines, responses.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from twostroke.server.errors import TOO_DEEP, HttpProblem, Problem
from twostroke.types.errors import InvalidRequest

MAX_PROMPTS = 64
MAX_CHAT_TOP_LOGPROBS = 20
MAX_COMPLETION_LOGPROBS = 5
MAX_SALT_CHARACTERS = 256
MAX_STOP_TOKEN_IDS = 1024
MAX_PRIORITY = 100


class StreamOptions(msgspec.Struct):
    """include_usage: send the token counts in a last chunk of their own."""

    include_usage: bool | None = None


class GenerationRequest(msgspec.Struct, kw_only=True):
    """The fields that both kinds of request share. Every optional one may be null."""

    model: str
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
    cache_salt: str | None = None
    priority: int | None = None
    ttft_s: float | None = None
    itl_s: float | None = None
    return_progress: bool | None = None
    # known, not supported: only neutral values pass (_NEUTRAL)
    response_format: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None
    use_beam_search: Any = None
    prompt_logprobs: Any = None
    prompt_embeds: Any = None
    truncate_prompt_tokens: Any = None
    include_stop_str_in_output: Any = None
    skip_special_tokens: Any = None
    add_special_tokens: Any = None


class ChatRequest(GenerationRequest, kw_only=True):
    """POST /v1/chat/completions. messages are checked by the chat template's room."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    audio: Any = None
    modalities: Any = None
    prediction: Any = None
    web_search_options: Any = None
    chat_template: Any = None
    add_generation_prompt: Any = None
    continue_final_message: Any = None


class CompletionRequest(GenerationRequest, kw_only=True):
    """POST /v1/completions. prompt: a text, texts, token ids, or lists of token ids."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "use_beam_search": (False,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "add_special_tokens": (True,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    **{
        name: ()
        for name in (
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "structured_outputs",
            "prompt_logprobs",
            "prompt_embeds",
            "truncate_prompt_tokens",
            "audio",
            "prediction",
            "web_search_options",
            "chat_template",
        )
    },
}

_Kind = TypeVar("_Kind", ChatRequest, CompletionRequest)


def read_chat(body: bytes, depth_limit: int) -> ChatRequest:
    """Decode and check. Raises InvalidRequest or HttpProblem (400)."""
    request = _decode(body, ChatRequest)
    _check_shared(request, depth_limit)
    if request.n is None:
        request.n = 1
    if request.max_completion_tokens is not None:
        if request.max_completion_tokens < 1:
            raise InvalidRequest("max_completion_tokens must be at least 1.", param="max_completion_tokens")
        request.max_tokens = request.max_completion_tokens
    if request.top_logprobs is not None:
        if not 0 <= request.top_logprobs <= MAX_CHAT_TOP_LOGPROBS:
            raise InvalidRequest(
                f"top_logprobs must be between 0 and {MAX_CHAT_TOP_LOGPROBS}, not {request.top_logprobs}.",
                param="top_logprobs",
            )
        if request.top_logprobs and not request.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    return request


def read_completion(body: bytes, depth_limit: int) -> CompletionRequest:
    """Decode and check. Raises InvalidRequest or HttpProblem (400)."""
    request = _decode(body, CompletionRequest)
    _check_shared(request, depth_limit)
    if request.n is None:
        request.n = 1
    if request.best_of is not None and request.best_of != request.n:
        raise InvalidRequest(
            f"best_of ({request.best_of}) is only supported equal to n ({request.n}).", param="best_of"
        )
    if request.suffix:
        raise InvalidRequest("suffix is not supported.", param="suffix", fix="Leave it out.")
    if request.logprobs is not None and not 0 <= request.logprobs <= MAX_COMPLETION_LOGPROBS:
        raise InvalidRequest(
            f"logprobs must be between 0 and {MAX_COMPLETION_LOGPROBS}, not {request.logprobs}.", param="logprobs"
        )
    _check_prompt_logprobs(request)
    return request


def _check_prompt_logprobs(request: CompletionRequest) -> None:
    if request.echo and request.logprobs is not None:
        raise InvalidRequest(
            "echo together with logprobs is not supported yet.",
            param="echo",
            why="It needs log probabilities of the prompt, which this engine does not compute.",
            fix="Leave out echo or logprobs.",
        )
    if request.max_tokens == 0:
        raise InvalidRequest(
            "max_tokens must be at least 1.",
            param="max_tokens",
            why="Scoring a prompt needs log probabilities of the prompt, which are not supported yet.",
        )


def _decode(body: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except RecursionError:
        raise HttpProblem(TOO_DEEP) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise HttpProblem(Problem(400, f"The request's body is no JSON: {error}.", code="invalid_json")) from None


def _wrong_field(message: str) -> InvalidRequest:
    """msgspec's "Expected `int`, got `str` - at `$.n`" with the field's name as `param`."""
    what, _, place = message.partition(" - at ")
    if place.startswith("`key` in "):
        place, what = place.removeprefix("`key` in "), f"A key of the object: {what}"
    param = place.strip("`").removeprefix("$").lstrip(".").replace("[...]", "[]") or None
    missing = "missing required field `"
    if missing in what and param is None:
        name = what.partition(missing)[2].rstrip("`")
        return InvalidRequest(f"The field {name!r} is missing.", param=name)
    if param is None:
        return InvalidRequest(f"The request's body is wrong: {what}.")
    return InvalidRequest(f"{param} is wrong: {what}.", param=param)


def _check_shared(request: GenerationRequest, depth_limit: int) -> None:
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if isinstance(value, (dict, list)) and name not in ("logit_bias", "stop", "stop_token_ids", "prompt"):
            _check_depth(value, depth_limit)
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value is not None and not any(_same(value, item) for item in neutral):
            raise InvalidRequest(f"{name} is not supported.", param=name, fix="Leave it out.", code="unsupported_value")
    if request.n is not None and not 1 <= request.n <= 128:
        raise InvalidRequest(f"n must be between 1 and 128, not {request.n}.", param="n")
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options needs stream to be true.", param="stream_options")
    if request.stop_token_ids is not None and len(request.stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(f"stop_token_ids has more than {MAX_STOP_TOKEN_IDS} entries.", param="stop_token_ids")
    if request.cache_salt is not None and len(request.cache_salt) > MAX_SALT_CHARACTERS:
        raise InvalidRequest(f"cache_salt is longer than {MAX_SALT_CHARACTERS} characters.", param="cache_salt")
    if request.priority is not None and not 0 <= request.priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"priority must be between 0 (interactive) and {MAX_PRIORITY} (batch work: 1 and above).", param="priority"
        )


def _same(value: Any, neutral: Any) -> bool:
    """Equality that keeps 1 and True apart."""
    return type(value) is type(neutral) and value == neutral


def _check_depth(value: Any, limit: int) -> None:
    """Breadth first, so that no depth can exhaust the stack here or in a template."""
    level = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item) if isinstance(child, (dict, list))]
        if not level:
            return
    raise HttpProblem(TOO_DEEP)


def _children(item: Any) -> Any:
    return item.values() if isinstance(item, dict) else item
