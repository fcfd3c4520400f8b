"""JSON schemas of the answers: the keys that are always there.

Knows: JSON schema.
Must not know: how answers are made.
"""

from __future__ import annotations

from typing import Any

from twostroke.server.schema import NEUTRAL

STREAMED: dict[str, Any] = {"type": "string", "description": "Server-sent events, where `stream` is true."}
_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_OBJECT: dict[str, Any] = {"type": "object"}


def _or_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _object(**properties: Any) -> dict[str, Any]:
    """Every key required, further ones allowed."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _const(value: str) -> dict[str, Any]:
    return {"const": value}


ERROR = _object(error=_object(message=_TEXT, type=_TEXT, param=_or_null("string"), code=_or_null("string")))
MESSAGES_ERROR = _object(type=_const("error"), error=_object(type=_TEXT, message=_TEXT))
_USAGE = _object(
    prompt_tokens=_COUNT,
    completion_tokens=_COUNT,
    total_tokens=_COUNT,
    prompt_tokens_details=_object(cached_tokens=_COUNT),
)
_MODEL = _object(id=_TEXT, object=_const("model"), created=_COUNT, owned_by=_TEXT, max_model_len=_COUNT)
_CHAT_CHOICE = _object(
    index=_COUNT,
    message=_object(role=_const("assistant"), content=_or_null("string"), refusal=_or_null("string")),
    logprobs=_or_null("object"),
    finish_reason={"enum": ["stop", "length", "tool_calls"]},
)
_COMPLETION_CHOICE = _object(
    index=_COUNT, text=_TEXT, logprobs=_or_null("object"), finish_reason={"enum": ["stop", "length"]}
)
_ENVELOPE = {"id": _TEXT, "created": _COUNT, "model": _TEXT, "system_fingerprint": _TEXT, "usage": _USAGE}

_PART = _object(type={"enum": ["text"]}, text=_TEXT)
_CONTENT = {"anyOf": [_TEXT, {"type": "array", "items": _PART}]}
_CHAT_PART: dict[str, Any] = {
    "type": "object",
    "properties": {"type": {"enum": ["text", "input_text", "output_text", None]}, "text": _TEXT},
    "required": ["text"],
}
_CHAT_CONTENT = {"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [_TEXT, _CHAT_PART]}}, {"type": "null"}]}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "properties": {"role": {"enum": ["system", "developer", "user", "assistant", "tool"]}, "content": _CHAT_CONTENT},
    "required": ["role"],
    "description": "Only an assistant's message may come without content.",
}
_MESSAGES: dict[str, Any] = {"type": "array", "items": _MESSAGE, "minItems": 1}


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _between(low: float, high: float, kind: str = "number") -> dict[str, Any]:
    return _maybe({"type": kind, "minimum": low, "maximum": high})


_NULL: dict[str, Any] = {"type": "null"}
_SAMPLING = {"temperature": _between(0, 2), "top_p": _between(0, 1)}
_MORE_SAMPLING = {
    **_SAMPLING,
    "top_k": _between(0, 2**31, "integer"),
    "min_p": _between(0, 1),
    "seed": _between(-(2**63), 2**63, "integer"),
    "repetition_penalty": _maybe({"type": "number", "exclusiveMinimum": 0, "maximum": 10}),
}
_OPENAI_SAMPLING = {
    **_MORE_SAMPLING,
    "n": _between(1, 128, "integer"),
    "max_tokens": _maybe({"type": "integer", "minimum": 0}),
    "presence_penalty": _between(-2, 2),
    "frequency_penalty": _between(-2, 2),
    "priority": _between(0, 100, "integer"),
    "ttft_s": _maybe({"type": "number", "exclusiveMinimum": 0}),
    "itl_s": _maybe({"type": "number", "exclusiveMinimum": 0}),
    **{name: {"enum": [None, *neutral]} for name, neutral in NEUTRAL.items()},
}
_MESSAGES_FIELDS = {
    "messages": {
        **_MESSAGES,
        "items": _object(role={"enum": ["user", "assistant"]}, content=_CONTENT),
        "description": "Content may also hold tool_use, tool_result and thinking blocks.",
    },
    "system": _maybe(_CONTENT),
    "tool_choice": _maybe(_object(type={"enum": ["auto", "any", "tool", "none"]})),
    "output_config": _maybe({"type": "object", "properties": {"format": _maybe(_object(type=_const("json_schema")))}}),
}
_RESPONSES_FIELDS = {
    **_MORE_SAMPLING,
    "input": {"anyOf": [{"type": "string", "minLength": 1}, _MESSAGES], "description": "Also calls and their outputs."},
    "truncation": _maybe(_const("disabled")),
    "background": {"enum": [False, None]},
    "top_logprobs": _between(0, 20, "integer"),
    "max_output_tokens": _maybe({"type": "integer", "minimum": 1}),
    "tool_choice": {"anyOf": [{"enum": ["auto", "none", "required", None]}, _object(type=_TEXT, name=_TEXT)]},
    **dict.fromkeys(("previous_response_id", "conversation", "prompt", "max_tool_calls"), _NULL),
}
DETAILS: dict[str, dict[str, Any]] = {
    "ChatRequest": {
        **_OPENAI_SAMPLING,
        "top_logprobs": _between(0, 20, "integer"),
        "messages": {**_MESSAGES, "description": "Also tool calls and their results."},
    },
    "CompletionRequest": {**_OPENAI_SAMPLING, "logprobs": _between(0, 5, "integer")},
    "ResponsesRequest": _RESPONSES_FIELDS,
    "CountRequest": _MESSAGES_FIELDS,
    "MessagesRequest": {**_SAMPLING, **_MESSAGES_FIELDS, "max_tokens": {"type": "integer", "minimum": 1}},
    "ResponseTool": {"type": _const("function"), "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}},
    "MessagesTool": {
        "type": {"enum": ["custom", None]},
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
    },
}
"""Fields that are checked in code, as schemas of their common part."""


ANSWERS: dict[str, Any] = {
    "ChatCompletion": _object(object=_const("chat.completion"), choices=_list(_CHAT_CHOICE), **_ENVELOPE),
    "Completion": _object(object=_const("text_completion"), choices=_list(_COMPLETION_CHOICE), **_ENVELOPE),
    "Response": _object(
        id=_TEXT,
        object=_const("response"),
        created_at=_COUNT,
        status={"enum": ["completed", "incomplete"]},
        error=_or_null("object"),
        incomplete_details=_or_null("object"),
        instructions=_or_null("string"),
        metadata=_OBJECT,
        model=_TEXT,
        output=_list(_object(id=_TEXT, type={"enum": ["message", "function_call", "reasoning"]}, status=_TEXT)),
        parallel_tool_calls={"type": "boolean"},
        temperature={"type": "number"},
        tool_choice={},
        tools=_list(_OBJECT),
        top_p={"type": "number"},
        usage=_object(
            input_tokens=_COUNT,
            input_tokens_details=_object(cached_tokens=_COUNT),
            output_tokens=_COUNT,
            output_tokens_details=_object(reasoning_tokens=_COUNT),
            total_tokens=_COUNT,
        ),
    ),
    "Message": _object(
        id=_TEXT,
        type=_const("message"),
        role=_const("assistant"),
        model=_TEXT,
        content=_list(_object(type={"enum": ["text", "thinking", "tool_use"]})),
        stop_reason={"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        stop_sequence=_or_null("string"),
        usage=_object(input_tokens=_COUNT, cache_read_input_tokens=_COUNT, output_tokens=_COUNT),
    ),
    "TokenCount": _object(input_tokens=_COUNT),
    "Tokens": _object(count=_COUNT, max_model_len=_COUNT, tokens=_list(_COUNT), token_strs=_or_null("array")),
    "Detokenized": _object(prompt=_TEXT),
    "TokenizerInfo": _object(tokenizer_class=_TEXT, eos_token=_or_null("string"), bos_token=_or_null("string")),
    "Model": _MODEL,
    "ModelList": _object(object=_const("list"), data=_list(_MODEL)),
    "Explanation": _object(id=_TEXT, object=_const("request.explanation"), completions=_list(_OBJECT)),
    "Health": _object(status=_TEXT),
    "Version": _object(version=_TEXT),
}
