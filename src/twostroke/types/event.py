"""The events that the scheduler gives after each step.

Per request: any number of PromptEvents and TokenEvents, then exactly one FinishedEvent.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import Struct

from twostroke.types.prefix import PrefixMiss
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob


class TokenEvent(msgspec.Struct, frozen=True, gc=False):
    """One new output token. at_s: the `now` of the commit. memory: see SampledToken.

    A Struct is made quickly: there are thousands a second.
    """

    request_id: str
    token_id: int
    logprob: TokenLogprob | None
    at_s: float
    memory: tuple[float, ...] = ()


class PromptEvent(Struct, frozen=True):
    """Log probabilities of the next tokens of the prompt, for a request that asked; the first token has none.

    rows_sum: for a pooled prompt, the sum of its rows so far: float64 numbers as bytes.
    """

    request_id: str
    logprobs: tuple[TokenLogprob, ...]
    rows_sum: bytes = b""


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The request's one terminal event. num_cached_tokens: prompt tokens found in the prefix tree at first admission.

    stopped_by, end_logprob: the end token where one ended it. first_scheduled_s: when its first position was first
    planned.
    prefix_miss: why the prefix tree had no more of the prompt at first admission; None where it had all it can.
    retry_after_s: where the request was refused because it would be late, when to come again. score: the score of an
    answer that a beam search found; else None.
    """

    request_id: str
    reason: FinishReason
    at_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    first_scheduled_s: float | None
    stopped_by: int | None = None
    end_logprob: TokenLogprob | None = None
    error: str | None = None
    prefix_miss: PrefixMiss | None = None
    retry_after_s: float | None = None
    score: float | None = None


Event = PromptEvent | TokenEvent | FinishedEvent
