"""Turns llama.cpp's requests for text, /completion and /infill, into completion requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from twostroke.server.api.infill import AskedMiddle, OtherText, infill_prompt, infill_tokens
from twostroke.server.api.schema import CompletionRequest, GenerationRequest, MediaPrompt, checked_completion
from twostroke.server.calls import Call
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.prompts import call_of_completion
from twostroke.server.serving import Serving
from twostroke.types.errors import InvalidRequest

MAX_PROBS = 5
MAX_EXTRA = 256
OFF: dict[str, tuple[Any, ...]] = {
    "n_indent": (0,),
    "t_max_predict_ms": (0, -1),
    "lora": ([],),
    "post_sampling_probs": (False,),
    "response_fields": ([],),
}
"""The fields that would change the answer in a way that is not implemented here, with the values that change nothing.
"""


class LlamaOptions(GenerationRequest, kw_only=True):
    """The fields that the bodies of /completion and /infill share. n_probs: how many likely tokens are shown for each
    token. The fields that the table OFF names are not supported: they may only have the values in that table, which
    change nothing."""

    n_probs: int | None = None
    return_tokens: bool | None = None
    n_indent: Any = None
    t_max_predict_ms: Any = None
    lora: Any = None
    post_sampling_probs: Any = None
    response_fields: Any = None


@body_kind
class LlamaCompletion(LlamaOptions, kw_only=True):
    """The body of POST /completion, which asks for the text after a prompt."""

    prompt: str | list[str | int | list[int]] | MediaPrompt


class ExtraFile(msgspec.Struct):
    """Another file of the client's project, as context for the text to fill in."""

    text: str
    filename: str = ""


@body_kind
class LlamaInfill(LlamaOptions, kw_only=True):
    """The body of POST /infill, which asks for the text between input_prefix and input_suffix. prompt: the beginning of
    the wanted text, as far as it is known."""

    input_prefix: str
    input_suffix: str
    input_extra: list[ExtraFile] | None = None
    prompt: str | None = None


def llama_completion(body: bytes, serving: Serving) -> Call:
    """Reads the body of POST /completion. Returns its prompt for the engine, and how it is to be answered. Raises
    InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, LlamaCompletion)
    return _call(request, request.prompt, serving)


def llama_infill(body: bytes, serving: Serving) -> Call:
    """Reads the body of POST /infill. Returns its prompt for the engine, and how it is to be answered. Raises
    InvalidRequest, ContextLengthExceeded, HttpProblem; 501 for a model without tokens for filling in."""
    request = decode(body, LlamaInfill)
    tokens = infill_tokens(serving)
    if tokens is None:
        raise HttpProblem(
            Problem(
                501,
                f"The model {serving.served_name} cannot fill in: its vocabulary has no tokens for that. "
                "Serve a model that was trained for it, such as Qwen2.5-Coder.",
                "not_supported_error",
                code="infill_not_supported",
            )
        )
    extra = request.input_extra or []
    if len(extra) > MAX_EXTRA:
        raise InvalidRequest(f"input_extra has more than {MAX_EXTRA} files.", param="input_extra")
    asked = AskedMiddle(
        request.input_prefix,
        request.input_suffix,
        request.prompt or "",
        [OtherText(each.text, each.filename) for each in extra],
        request.n_predict if (request.n_predict or -1) > 0 else request.max_tokens,
    )
    made = infill_prompt(asked, tokens, serving)
    request.stop_token_ids = [*(request.stop_token_ids or ()), *tokens.ends]
    call = _call(request, list(made.token_ids), serving)
    return replace(call, warnings=(*call.warnings, *made.left_out))


def _call(request: LlamaOptions, prompt: str | list[str | int | list[int]] | MediaPrompt, serving: Serving) -> Call:
    for name, off in OFF.items():
        value = getattr(request, name)
        if value is not None and value not in off:
            raise InvalidRequest(
                f"{name} is not supported.",
                param=name,
                why="This engine does not compute it.",
                fix="Leave it out.",
                code="unsupported_value",
            )
    if request.n_probs is not None and not 0 <= request.n_probs <= MAX_PROBS:
        raise InvalidRequest(f"n_probs must be between 0 and {MAX_PROBS}, not {request.n_probs}.", param="n_probs")
    shared = {name: getattr(request, name) for name in GenerationRequest.__struct_fields__}
    if shared["n_predict"] is None and shared["max_tokens"] is None:
        shared["n_predict"] = -1
    asked = CompletionRequest(prompt=prompt, logprobs=request.n_probs or None, **shared)
    call = call_of_completion(checked_completion(asked, serving.caps.json_depth), serving, "cmpl-")
    if call.num_choices != 1:
        fix = "Send one prompt, or ask /v1/completions."
        raise InvalidRequest("/completion makes one answer.", param="prompt", fix=fix)
    return replace(call, asked=request)
