"""POST /completion: llama.cpp's request made into a completion request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twostroke.server.api.schema import CompletionRequest, GenerationRequest, checked_completion
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.parts import ServerParts
from twostroke.server.prompts import call_of_completion
from twostroke.types.errors import InvalidRequest

MAX_PROBS = 5
OFF: dict[str, tuple[Any, ...]] = {
    "n_indent": (0,),
    "t_max_predict_ms": (0, -1),
    "lora": ([],),
    "post_sampling_probs": (False,),
    "response_fields": ([],),
}
"""Fields that would change the answer in a way that is not computed here, with the values that change nothing."""


@body_kind
class LlamaCompletion(GenerationRequest, kw_only=True):
    """POST /completion. n_probs: how many likely tokens are shown for each. Fields of OFF pass where they are off."""

    prompt: str | list[str | int | list[int]]
    n_probs: int | None = None
    return_tokens: bool | None = None
    n_indent: Any = None
    t_max_predict_ms: Any = None
    lora: Any = None
    post_sampling_probs: Any = None
    response_fields: Any = None


def llama_completion(body: bytes, parts: ServerParts) -> Call:
    """Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, LlamaCompletion)
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
    asked = CompletionRequest(prompt=_texts(request.prompt), logprobs=request.n_probs or None, **shared)
    call = call_of_completion(checked_completion(asked, parts.limits.json_depth), parts, "cmpl-")
    if call.num_choices != 1:
        fix = "Send one prompt, or ask /v1/completions."
        raise InvalidRequest("/completion makes one answer.", param="prompt", fix=fix)
    return replace(call, asked=request)


def _texts(prompt: str | list[str | int | list[int]]) -> str | list[str | int | list[int]]:
    return prompt if isinstance(prompt, str) else list(prompt)
