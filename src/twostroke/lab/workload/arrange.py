"""Changes to a workload: another rate, fewer requests, shorter ones, other arrival times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Changes to a workload. rate_scale: 2 makes all requests arrive twice as fast. limit: how many requests are kept,
    from the first on.

    tokens_scale: a factor for all prompt and output lengths. max_prompt_tokens, max_output_tokens, max_context_tokens:
    the most tokens of a request; longer ones are clipped (the context by shortening the prompt). None clips nothing.
    """

    rate_scale: float = 1.0
    limit: int | None = None
    tokens_scale: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    max_context_tokens: int | None = None


def arranged(requests: Sequence[WorkloadRequest], how: Arrangement) -> list[WorkloadRequest]:
    """Returns the requests with the changes that `how` describes. The rate scale divides all arrival times, that of the
    first request too.

    Raises ConfigError for a rate scale or token scale that is not above 0.
    """
    if how.rate_scale <= 0 or how.tokens_scale <= 0:
        raise ConfigError("A workload is scaled by a factor above 0.", fix="Give a factor such as 2 or 0.5.")
    return [_one(request, how) for request in requests[: how.limit]]


def at_times(requests: Sequence[WorkloadRequest], times_s: Sequence[float]) -> list[WorkloadRequest]:
    """Returns the requests at other times. The shorter of the two sequences decides how many there are."""
    return [replace(request, arrival_s=time_s) for request, time_s in zip(requests, times_s, strict=False)]


def _one(request: WorkloadRequest, how: Arrangement) -> WorkloadRequest:
    least = 0 if request.scored and not request.output_tokens else 1
    output = max(least, round(request.output_tokens * how.tokens_scale))
    prompt = max(1, round(request.prompt_tokens * how.tokens_scale))
    output = min(output, how.max_output_tokens or output)
    prompt = min(prompt, how.max_prompt_tokens or prompt)
    if how.max_context_tokens is not None:
        output = min(output, max(1, how.max_context_tokens - 1))
        prompt = min(prompt, max(1, how.max_context_tokens - output))
    text = request.text
    if text is not None and prompt < request.prompt_tokens:
        # Characters stand for tokens in proportion. A caller that needs the exact number counts again.
        text = text[: max(1, len(text) * prompt // request.prompt_tokens)]
    ids = request.block_ids[: -(-prompt // request.block_tokens)]
    return replace(
        request,
        arrival_s=request.arrival_s / how.rate_scale,
        prompt_tokens=prompt,
        output_tokens=output,
        block_ids=ids,
        text=text,
    )
