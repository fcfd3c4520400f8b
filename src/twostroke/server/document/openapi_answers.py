"""JSON schemas of the OpenAPI document: those of answers, and exact ones of request fields that are checked in code. An
answer's schema has the keys that every such answer has, and few others."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.json_schema import COUNT, OBJECT, TEXT, list_of, maybe, object_of, or_null
from twostroke.server.api.responses_request import NOT_SUPPORTED
from twostroke.server.api.retrieval_request import MAX_TEXTS, REFUSED
from twostroke.server.api.schema import NEUTRAL
from twostroke.types.sampling.sampler_fields import DEFAULTS, RANGES
from twostroke.types.speculate import WAYS

STREAMED: dict[str, Any] = {
    "type": "object",
    "properties": {"data": {**TEXT, "description": "JSON, or [DONE]."}},
    "required": ["data"],
    "description": "One server-sent event.",
}


def _const(value: str) -> dict[str, Any]:
    return {"const": value}


ERROR = object_of(error=object_of(message=TEXT, type=TEXT, param=or_null("string"), code=or_null("string")))
MESSAGES_ERROR = object_of(type=_const("error"), error=object_of(type=TEXT, message=TEXT))
_USAGE = object_of(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=object_of(cached_tokens=COUNT),
)
_READ_USAGE = object_of(prompt_tokens=COUNT, total_tokens=COUNT)
_EMBEDDING = object_of(
    object=_const("embedding"),
    index=COUNT,
    embedding={"anyOf": [list_of({"type": "number"}), {**TEXT, "description": "float32, little-endian, in base64."}]},
)
_MODEL = object_of(
    id=TEXT, object=_const("model"), created=COUNT, owned_by=TEXT, max_model_len=COUNT, context_length=COUNT
)
_MODEL["properties"] |= dict.fromkeys(("weights", "kv_format", "key_factors"), TEXT)
_MODEL["properties"]["has_chat_template"] = {"type": "boolean"}
_CHAT_CHOICE = object_of(
    index=COUNT,
    message=object_of(role=_const("assistant"), content=or_null("string"), refusal=or_null("string")),
    logprobs=or_null("object"),
    finish_reason={"enum": ["stop", "length", "tool_calls", "function_call"]},
)
_COMPLETION_CHOICE = object_of(
    index=COUNT, text=TEXT, logprobs=or_null("object"), finish_reason={"enum": ["stop", "length"]}
)
_ENVELOPE = {"id": TEXT, "created": COUNT, "model": TEXT, "system_fingerprint": TEXT, "usage": _USAGE}

_PART = object_of(type={"enum": ["text"]}, text=TEXT)
_CONTENT = {"anyOf": [TEXT, {"type": "array", "items": _PART}]}
_CHAT_PART: dict[str, Any] = {
    "type": "object",
    "properties": {"type": {"enum": ["text", "input_text", "output_text", None]}, "text": TEXT},
    "required": ["text"],
}
_CHAT_CONTENT = {"anyOf": [TEXT, {"type": "array", "items": {"anyOf": [TEXT, _CHAT_PART]}}, {"type": "null"}]}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "properties": {"role": {"enum": ["system", "developer", "user", "assistant", "tool"]}, "content": _CHAT_CONTENT},
    "required": ["role"],
    "description": "Only an assistant's message may come without content.",
}
_MESSAGES: dict[str, Any] = {"type": "array", "items": _MESSAGE, "minItems": 1}
_ITEM = {
    **_MESSAGE,
    "properties": {"role": _MESSAGE["properties"]["role"], "content": {}},
    "description": "Content is a text or parts of text; what an earlier turn left is read as far as it is known.",
}
_ITEMS: dict[str, Any] = {"type": "array", "items": _ITEM, "minItems": 1}


def _between(low: float, high: float, kind: str = "number") -> dict[str, Any]:
    return maybe({"type": kind, "minimum": low, "maximum": high})


def _sampler(name: str) -> dict[str, Any]:
    low, high = RANGES[name]
    kind = "integer" if isinstance(DEFAULTS[name], int) else "number"
    return _between(low, min(high, 2**31), kind)


_NULL: dict[str, Any] = {"type": "null"}
_SAMPLING = {"temperature": _between(0, 2), "top_p": _between(0, 1)}
_MORE_SAMPLING = {
    **_SAMPLING,
    "top_k": _between(0, 2**31, "integer"),
    "min_p": _between(0, 1),
    **{name: _sampler(name) for name in RANGES},
    "seed": _between(-(2**63), 2**63, "integer"),
    "repetition_penalty": maybe({"type": "number", "exclusiveMinimum": 0, "maximum": 10}),
}
_OPENAI_SAMPLING = {
    **_MORE_SAMPLING,
    "n": _between(1, 128, "integer"),
    "max_tokens": maybe({"type": "integer", "minimum": 0}),
    "presence_penalty": _between(-2, 2),
    "frequency_penalty": _between(-2, 2),
    "priority": _between(0, 100, "integer"),
    "speculate": {"enum": [*WAYS, None], "description": "Also draft, medusa, eagle or mtp, where it is there."},
    "best_of": {
        **_between(1, 128, "integer"),
        "description": "How many answers are made; the n with the highest mean log probability are given, best "
        "first. With use_beam_search: the number of beams. Streamed, each answer is one event, when all are there. "
        "usage counts the tokens of all of them.",
    },
    "use_beam_search": {
        **maybe({"type": "boolean"}),
        "description": "Find the n best answers by a beam search with best_of (or n) beams, as transformers does it. "
        "An answer's score is the sum of its log probabilities / (tokens ** length_penalty).",
    },
    "length_penalty": _between(-10, 10),
    "early_stopping": {"enum": [True, False, "never", None]},
    "ttft_s": maybe({"type": "number", "exclusiveMinimum": 0}),
    "itl_s": maybe({"type": "number", "exclusiveMinimum": 0}),
    **{name: {"enum": [None, *neutral]} for name, neutral in NEUTRAL.items()},
}
_MESSAGES_FIELDS = {
    "messages": {
        **_MESSAGES,
        "items": object_of(role={"enum": ["user", "assistant"]}, content=_CONTENT),
        "description": "Content may also hold tool_use, tool_result and thinking blocks.",
    },
    "system": {
        "anyOf": [TEXT, {"type": "array", "items": OBJECT}, {"type": "null"}],
        "description": "Blocks of a type that is not text are left out, and X-Twostroke-Warnings names them.",
    },
    "tool_choice": maybe(object_of(type={"enum": ["auto", "any", "tool", "none"]})),
    "output_config": maybe({"type": "object", "properties": {"format": maybe(object_of(type=_const("json_schema")))}}),
}
_RESPONSES_FIELDS = {
    **_MORE_SAMPLING,
    "input": {"anyOf": [{"type": "string", "minLength": 1}, _ITEMS], "description": "Also calls and their outputs."},
    "truncation": {"enum": ["auto", "disabled", None]},
    "background": {"enum": [False, None]},
    "previous_response_id": _NULL,
    "top_logprobs": _between(0, 20, "integer"),
    "max_output_tokens": maybe({"type": "integer", "minimum": 1}),
    "tool_choice": {"anyOf": [{"enum": ["auto", "none", "required", None]}, object_of(type=TEXT, name=TEXT)]},
    **dict.fromkeys(NOT_SUPPORTED, _NULL),
}
_TEXTS = {
    "priority": _between(0, 100, "integer"),
    "truncate_prompt_tokens": maybe({"type": "integer", "minimum": -1}),
    **dict.fromkeys(REFUSED, _NULL),
}
DETAILS: dict[str, dict[str, Any]] = {
    "ChatRequest": {
        **_OPENAI_SAMPLING,
        "max_tokens": maybe({"type": "integer", "minimum": 1}),
        "top_logprobs": _between(0, 20, "integer"),
        "messages": {**_MESSAGES, "description": "Also tool calls and their results."},
    },
    "CompletionRequest": {**_OPENAI_SAMPLING, "logprobs": _between(0, 5, "integer")},
    "ResponsesRequest": _RESPONSES_FIELDS,
    "CountRequest": _MESSAGES_FIELDS,
    "EmbeddingRequest": {
        **_TEXTS,
        "input": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": MAX_TEXTS},
                {"type": "array", "items": COUNT, "minItems": 1},
                {"type": "array", "items": {"type": "array", "items": COUNT, "minItems": 1}, "minItems": 1},
            ]
        },
        "dimensions": maybe({"type": "integer", "minimum": 1, "description": "At most the model's own."}),
        "instruction": _NULL,
    },
    "RerankRequest": {
        **_TEXTS,
        "query": {"type": "string", "minLength": 1},
        "top_n": maybe({"type": "integer", "minimum": 1}),
        "max_tokens_per_doc": maybe({"type": "integer", "minimum": 1}),
    },
    "ScoreRequest": _TEXTS,
    "MessagesRequest": {**_SAMPLING, **_MESSAGES_FIELDS, "max_tokens": {"type": "integer", "minimum": 1}},
    "ResponseTool": {"type": _const("function"), "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}},
    "MessagesTool": {
        "type": {"enum": ["custom", None]},
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
    },
}
"""JSON schemas of request fields, by the request class and the field. They replace the schemas made from the classes,
because code allows less in these fields than the Python types."""


ANSWERS: dict[str, Any] = {
    "ChatCompletion": object_of(object=_const("chat.completion"), choices=list_of(_CHAT_CHOICE), **_ENVELOPE),
    "Completion": object_of(object=_const("text_completion"), choices=list_of(_COMPLETION_CHOICE), **_ENVELOPE),
    "Response": object_of(
        id=TEXT,
        object=_const("response"),
        created_at=COUNT,
        status={"enum": ["completed", "incomplete"]},
        error=or_null("object"),
        incomplete_details=or_null("object"),
        instructions=or_null("string"),
        metadata=OBJECT,
        model=TEXT,
        output=list_of(object_of(id=TEXT, type={"enum": ["message", "function_call", "reasoning"]}, status=TEXT)),
        parallel_tool_calls={"type": "boolean"},
        temperature={"type": "number"},
        tool_choice={},
        tools=list_of(OBJECT),
        top_p={"type": "number"},
        usage=object_of(
            input_tokens=COUNT,
            input_tokens_details=object_of(cached_tokens=COUNT),
            output_tokens=COUNT,
            output_tokens_details=object_of(reasoning_tokens=COUNT),
            total_tokens=COUNT,
        ),
    ),
    "Message": object_of(
        id=TEXT,
        type=_const("message"),
        role=_const("assistant"),
        model=TEXT,
        content=list_of(object_of(type={"enum": ["text", "thinking", "tool_use"]})),
        stop_reason={"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        stop_sequence=or_null("string"),
        usage=object_of(input_tokens=COUNT, cache_read_input_tokens=COUNT, output_tokens=COUNT),
    ),
    "Embeddings": object_of(
        id=TEXT, object=_const("list"), created=COUNT, model=TEXT, data=list_of(_EMBEDDING), usage=_READ_USAGE
    ),
    "Ranks": object_of(
        id=TEXT,
        model=TEXT,
        results=list_of(object_of(index=COUNT, relevance_score={"type": "number"})),
        usage=_READ_USAGE,
    ),
    "Scores": object_of(
        id=TEXT,
        object=_const("list"),
        created=COUNT,
        model=TEXT,
        data=list_of(object_of(index=COUNT, object=_const("score"), score={"type": "number"})),
        usage=_READ_USAGE,
    ),
    "TokenCount": object_of(input_tokens=COUNT),
    "ItemTokenCount": object_of(input_tokens=COUNT, object=_const("response.input_tokens")),
    "Tokens": {
        "anyOf": [
            object_of(count=COUNT, max_model_len=COUNT, tokens=list_of(COUNT), token_strs=or_null("array")),
            object_of(tokens=list_of({})),
        ]
    },
    "LlamaVectors": list_of(object_of(index=COUNT, embedding=list_of(list_of({"type": "number"})))),
    "Slots": list_of(object_of(id=COUNT, n_ctx=COUNT, is_processing={"type": "boolean"})),
    "Detokenized": object_of(prompt=TEXT, content=TEXT),
    "Rendered": object_of(prompt=TEXT),
    "Props": object_of(
        default_generation_settings=OBJECT, total_slots=COUNT, model_path=TEXT, chat_template=TEXT, build_info=TEXT
    ),
    "LlamaAnswer": object_of(
        content=TEXT,
        tokens=list_of(COUNT),
        stop={"const": True},
        model=TEXT,
        tokens_predicted=COUNT,
        tokens_evaluated=COUNT,
        stop_type={"enum": ["eos", "limit", "word"]},
        stopping_word=TEXT,
        timings=OBJECT,
    ),
    "TokenizerInfo": object_of(tokenizer_class=TEXT, eos_token=or_null("string"), bos_token=or_null("string")),
    "Model": _MODEL,
    "ModelList": object_of(object=_const("list"), data=list_of(_MODEL)),
    "Explanation": object_of(id=TEXT, object=_const("request.explanation"), completions=list_of(OBJECT)),
    "Health": object_of(status=TEXT),
    "Version": object_of(version=TEXT),
}
