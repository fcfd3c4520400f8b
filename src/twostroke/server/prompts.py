"""A checked request made into engine prompts: text to token ids, fields to SamplingParams, everything against caps.

Runs in a worker thread: templates and tokenizers can take a while.

Knows: ServerParts, requests, SamplingParams.
Must not know: sockets, responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from twostroke.server.errors import HttpProblem, unknown_model
from twostroke.server.parts import ServerParts
from twostroke.server.schema import (
    MAX_PROMPTS,
    CompletionRequest,
    GenerationRequest,
    read_chat,
    read_completion,
)
from twostroke.types.errors import InvalidRequest
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.output import Prompt
from twostroke.types.sampling_params import SamplingParams

DEFAULT_COMPLETION_TOKENS = 16
_PLAIN_FIELDS = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "min_p",
    "repetition_penalty",
    "ignore_eos",
    "min_tokens",
)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, ready to run. prompts: one for chat. n: completions of each. echoes: text put before each
    completion of prompt i, or None. logprobs: as in SamplingParams. include_usage: of a stream.
    progress: tell how far the prompt is.
    """

    response_id: str
    created_s: int
    prompts: tuple[Prompt, ...]
    n: int
    logprobs: int | None
    stream: bool
    include_usage: bool
    echoes: tuple[str, ...] | None = None
    progress: bool = False

    @property
    def num_choices(self) -> int:
        """Completions of all prompts; the choice index is prompt * n + index."""
        return len(self.prompts) * self.n

    @property
    def num_prompt_tokens(self) -> int:
        """Sum over prompts; a prompt counts once, whatever n is."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)


def chat_call(body: bytes, parts: ServerParts) -> Call:
    """Read a chat request. Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = read_chat(body, parts.limits.json_depth)
    _check_model(request, parts)
    if parts.template is None:
        raise InvalidRequest(
            f"The model {parts.served_name} has no chat template.",
            param="messages",
            why="It is a base model: it continues text.",
            fix="Use /v1/completions.",
        )
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    params = _params(request, logprobs, request.max_tokens, parts)
    text = parts.template.render(request.messages, variables=request.chat_template_kwargs)
    token_ids = parts.tokenizer.encode_rendered(text)
    return _call(request, "chatcmpl-", [token_ids], "messages", logprobs, [params], parts)


def completion_call(body: bytes, parts: ServerParts) -> Call:
    """Read a completion request. Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = read_completion(body, parts.limits.json_depth)
    _check_model(request, parts)
    given = _split_prompts(request.prompt)
    lists = [parts.tokenizer.encode_prompt(p) if isinstance(p, str) else p for p in given]
    params = [_params(request, request.logprobs, _room(request, ids, parts), parts) for ids in lists]
    call = _call(request, "cmpl-", lists, "prompt", request.logprobs, params, parts)
    if not request.echo:
        return call
    # Only now are the ids known to be legal.
    return replace(call, echoes=tuple(p if isinstance(p, str) else parts.tokenizer.decode(p) for p in given))


def _room(request: CompletionRequest, token_ids: Sequence[int], parts: ServerParts) -> int:
    """OpenAI's default of 16 tokens, fewer where the context ends before."""
    if request.max_tokens is not None:
        return request.max_tokens
    room = max(1, parts.context_tokens - len(token_ids))
    return max(min(DEFAULT_COMPLETION_TOKENS, room), min(request.min_tokens or 0, room))


def _call(
    request: GenerationRequest,
    prefix: str,
    lists: Sequence[Sequence[int]],
    param: str,
    logprobs: int | None,
    params: Sequence[SamplingParams],
    parts: ServerParts,
) -> Call:
    n = request.n or 1
    if len(lists) * n > parts.limits.choices:
        raise InvalidRequest(
            f"{len(lists)} prompts with n = {n} are {len(lists) * n} completions; "
            f"at most {parts.limits.choices} are made in one request.",
            param="n",
        )
    response_id = prefix + parts.new_id()
    prompts = tuple(
        Prompt(
            tuple(ids),
            own,
            f"{response_id}-{place}",
            request.cache_salt or "",
            request.priority or 0,
            LatencyObjectives(request.ttft_s, request.itl_s),
        )
        for place, (ids, own) in enumerate(zip(lists, params, strict=True))
    )
    _check_all(prompts, param, parts)
    options = request.stream_options
    return Call(
        response_id=response_id,
        created_s=int(parts.wall_clock()),
        prompts=prompts,
        n=n,
        logprobs=logprobs,
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        progress=bool(request.return_progress),
    )


def _check_model(request: GenerationRequest, parts: ServerParts) -> None:
    if request.model != parts.served_name:
        raise HttpProblem(unknown_model(request.model, parts.served_name))


def _split_prompts(prompt: str | Sequence[str | int | list[int]]) -> list[str | list[int]]:
    """The four shapes of `prompt` as a list of prompts."""
    if isinstance(prompt, str):
        prompt = [prompt]
    if not prompt or "" in prompt:
        # Also where the tokenizer would put a BOS in front: an empty text is a client's mistake far more often.
        raise InvalidRequest("prompt is empty.", param="prompt", fix="Send some text, or the id of a BOS token.")
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return [ids]
    several = [item for item in prompt if not isinstance(item, int)]
    if len(several) != len(prompt) or len({isinstance(item, str) for item in several}) != 1:
        raise InvalidRequest(
            "prompt mixes texts and token ids.",
            param="prompt",
            fix="Send a text, a list of texts, a list of token ids, or a list of such lists.",
        )
    if len(several) > MAX_PROMPTS:
        raise InvalidRequest(f"prompt has {len(several)} entries; at most {MAX_PROMPTS} are read.", param="prompt")
    return several


def _params(
    request: GenerationRequest, logprobs: int | None, max_tokens: int | None, parts: ServerParts
) -> SamplingParams:
    asked: dict[str, Any] = dict(parts.defaults)
    asked.update({name: value for name in _PLAIN_FIELDS if (value := getattr(request, name)) is not None})
    if request.top_k is not None:
        asked["top_k"] = max(request.top_k, 0) if request.top_k == -1 else request.top_k
    stop = request.stop
    asked.update(
        n=request.n or 1,
        logprobs=logprobs,
        max_tokens=max_tokens,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        stop_token_ids=tuple(request.stop_token_ids or ()),
    )
    return SamplingParams(**asked)


def _check_all(prompts: Sequence[Prompt], param: str, parts: ServerParts) -> None:
    """All prompts, before the first one is queued. The field is named as the client wrote it."""
    try:
        for prompt in prompts:
            parts.engine.check(prompt)
    except InvalidRequest as error:
        if error.param == "prompt":
            error.param = param
        raise
