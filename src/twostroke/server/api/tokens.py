"""/tokenize, /detokenize, /tokenizer_info: the model's tokenizer, for clients that count or score by tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from twostroke.server.api.changed.kept_tools import AskedTool
from twostroke.server.api.model_list import asked_model
from twostroke.server.api.schema import ChatRequest, checked_chat
from twostroke.server.api.sse import line_json
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.prompts import prompt_of_chat
from twostroke.server.serving import Serving
from twostroke.types.errors import ContextLengthExceeded, InvalidRequest
from twostroke.types.notes import Notes

MAX_TOKENS = 1024 * 1024
SLICE = 16 * 1024


@body_kind
class TokenizeRequest(msgspec.Struct, kw_only=True):
    """The body of POST /tokenize, which asks for the tokens of a prompt, or of messages in the chat template."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None  # llama.cpp's name
    add_special: bool | None = None
    with_pieces: bool | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[AskedTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    parse_special: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


@body_kind
class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """The body of POST /detokenize, which asks for the text of some tokens."""

    tokens: list[int]
    model: str | None = None


def tokenize(body: bytes, serving: Serving) -> dict[str, Any]:
    """Returns the answer of /tokenize: count, max_model_len, tokens, token_strs; for the field `content` the tokens, as
    in llama.cpp. Raises InvalidRequest, HttpProblem."""
    request = decode(body, TokenizeRequest)
    asked_model(request.model, serving)
    if request.content is not None:
        return _pieces(request, request.content, serving)
    if (request.prompt is None) == (request.messages is None):
        raise InvalidRequest("Send either prompt or messages.", param="prompt")
    prompt = request.prompt or ""
    if request.messages is not None:
        chat = chat_of(request, serving)
        rendered = prompt_of_chat(checked_chat(chat, serving.caps.json_depth, Notes()), serving)
        ids = _listed(partial(serving.tokenizer.encode_rendered, quoted=rendered.quoted), rendered.text)
    elif request.add_special_tokens is False:
        quoted = ((0, len(prompt)),) if request.parse_special is False else ()
        ids = _listed(partial(serving.tokenizer.encode_rendered, quoted=quoted), prompt)
    else:
        special = request.parse_special is not False
        ids = _listed(partial(serving.tokenizer.encode_prompt, parse_special=special), prompt)
    count, texts = len(ids), None
    if request.return_token_strs:
        texts = [serving.tokenizer.token_bytes(i).decode("utf-8", errors="replace") for i in ids]
    return {
        "count": count,
        "max_model_len": serving.context_tokens,
        "tokens": _written(ids),
        "token_strs": None if texts is None else _written(texts),
    }


def _pieces(request: TokenizeRequest, text: str, serving: Serving) -> dict[str, Any]:
    """Returns llama.cpp's answer: ids, or ids with their texts. A piece that is no valid text alone is a list of bytes.
    """
    tokenizer, special = serving.tokenizer, request.parse_special is not False
    if request.add_special:
        ids = _listed(partial(tokenizer.encode_prompt, parse_special=special), text)
    else:
        ids = _listed(partial(tokenizer.encode_rendered, quoted=() if special else ((0, len(text)),)), text)
    if not request.with_pieces:
        return {"tokens": _written(ids)}
    return {"tokens": _written([{"id": each, "piece": _piece(tokenizer.token_bytes(each))} for each in ids])}


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


def chat_of(request: TokenizeRequest, serving: Serving) -> ChatRequest:
    """Returns the chat request whose prompt /tokenize must render: the messages and tools of the request."""
    return ChatRequest(
        model=serving.served_name,
        messages=request.messages or [],
        tools=request.tools,
        chat_template_kwargs=request.chat_template_kwargs,
        parse_special=request.parse_special,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
    )


def _written(items: list[Any]) -> msgspec.Raw:
    """Returns the JSON of a list, and empties the list. Both are done in slices, because no other thread runs while one
    slice is written or freed. A million ids at once would hold up every stream."""
    starts = range(0, len(items), SLICE)
    raw = b",".join([line_json(items[start : start + SLICE])[1:-1] for start in starts])
    while items:
        del items[-SLICE:]
    return msgspec.Raw(b"[" + raw + b"]")


def _listed(encode: Callable[[str, int], list[int]], text: str) -> list[int]:
    """Returns the ids of a text. Raises InvalidRequest for a text of more than MAX_TOKENS tokens."""
    try:
        return encode(text, MAX_TOKENS + 1)
    except ContextLengthExceeded:
        raise InvalidRequest(
            f"The text has more than {MAX_TOKENS:,} tokens, the most that are listed.", param="prompt"
        ) from None


def detokenize(body: bytes, serving: Serving) -> dict[str, Any]:
    """Returns the answer of /detokenize, whose field `prompt` is the text. Raises InvalidRequest, HttpProblem."""
    request = decode(body, DetokenizeRequest)
    asked_model(request.model, serving)
    if len(request.tokens) > MAX_TOKENS:
        raise InvalidRequest(f"tokens has more than {MAX_TOKENS:,} entries.", param="tokens")
    wrong = next((i for i in request.tokens if not 0 <= i < 2**31), None)
    if wrong is not None:
        raise InvalidRequest(f"tokens holds {wrong}, which is no token id.", param="tokens")
    text = serving.tokenizer.decode(request.tokens)
    return {"prompt": text, "content": text}  # vLLM calls it "prompt", llama.cpp "content"


def tokenizer_info(serving: Serving) -> dict[str, Any]:
    """Returns the special tokens by role; lm-eval asks for eos_token."""
    named = {"eos_token": None, "bos_token": None, "pad_token": None, "unk_token": None}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": serving.context_tokens,
        **named,
        **dict(serving.special_texts),
    }
