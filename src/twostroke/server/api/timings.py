"""`timings` of an answer, in llama.cpp's form."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.shape import Counts
from twostroke.types.output import Timings


def timings_of(timings: Timings | None, prompt_tokens: int, counts: Counts) -> dict[str, Any]:
    """Returns llama.cpp's `timings`: how long the prompt and the answer took, without the time in the queue. timings:
    the measured times of the request; None gives zeros."""
    prompt_s = answer_s = 0.0
    if timings is not None and timings.parts is not None:
        parts = timings.parts
        prompt_s = parts.encode_s + parts.own_prefill_s + parts.others_prefill_s + parts.recompute_s
        answer_s = parts.decode_s + parts.host_gap_s + parts.preempted_s
    computed = prompt_tokens - counts.cached
    return {
        "cache_n": counts.cached,
        "prompt_n": computed,
        "prompt_ms": prompt_s * 1e3,
        "prompt_per_token_ms": prompt_s * 1e3 / computed if computed else 0.0,
        "prompt_per_second": computed / prompt_s if prompt_s else 0.0,
        "predicted_n": counts.completion,
        "predicted_ms": answer_s * 1e3,
        "predicted_per_token_ms": answer_s * 1e3 / counts.completion if counts.completion else 0.0,
        "predicted_per_second": counts.completion / answer_s if answer_s else 0.0,
    }
