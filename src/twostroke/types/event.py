"""The events that the scheduler gives after each step.

Per request: any number of PromptEvents and TokenEvents, then exactly one FinishedEvent.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import Struct

from twostroke.types.recorded.prefix import PrefixMiss
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob


class TokenEvent(msgspec.Struct, frozen=True, gc=False):
    """One new output token. at_s: the time `now` that `commit` was given. memory: what the request's samplers remember
    after this token; empty where they remember nothing.

    The class is a Struct because a Struct is made quickly: there are thousands of these events a second.
    """

    request_id: str
    token_id: int
    logprob: TokenLogprob | None
    at_s: float
    memory: tuple[float, ...] = ()


class PromptEvent(Struct, frozen=True):
    """The log probabilities of the next tokens of a prompt, for a request that asked for them; the prompt's first token
    has none.

    rows_sum: for a pooled prompt, the sum of its rows so far: float64 numbers as bytes.
    """

    request_id: str
    logprobs: tuple[TokenLogprob, ...]
    rows_sum: bytes = b""


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The last event of a request. num_cached_tokens: the prompt tokens found in the prefix tree at the first
    admission.

    stopped_by, end_logprob: the id of the end token that ended the output, and its log probability; else None.
    first_scheduled_s: the time at which the request's first position was planned. prefix_miss: why the prefix tree had
    no more of the prompt at the first admission; None where it had as much as it can have. retry_after_s: for a request
    that was refused because it would be late, the seconds after which it may be sent again. score: the score of an
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
