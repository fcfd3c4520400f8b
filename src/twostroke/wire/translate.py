"""Requests and events to frames, and back.

Knows: both shapes.
Must not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from twostroke.types.event import Event, FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.grammar import TokenMask
from twostroke.types.request import Request
from twostroke.wire.frames import Assignment, WireEnd, WirePrompt, WireRequest, WireToken


def wire_request(request: Request, now: float) -> WireRequest:
    """The request for another process. Its mask is not sent: the replica makes one of its own from params.grammar."""
    return WireRequest(
        group=request.group_id,
        prompt_token_ids=request.prompt_token_ids,
        params=request.params,
        seed=request.seed,
        max_tokens=request.max_tokens,
        end_token_ids=request.end_token_ids,
        cache_salt=request.cache_salt,
        priority=request.priority,
        objectives=request.objectives,
        waited_s=max(0.0, now - request.arrival_s),
        speculate=request.speculate,
    )


def requests_of(work: Assignment, names: Sequence[str], masks: Sequence[TokenMask | None], now: float) -> list[Request]:
    """The replica's requests for an assignment, with the replica's own time: the request under the first name, and the
    other beams of its search. masks: they have taken in `work.resumed`."""
    first = _request_of(work, names[0], masks[0], now)
    silent = replace(first.params, prompt_logprobs=None)  # the first one has them
    others = zip(names[1:], masks[1:], strict=True)
    return [first, *(replace(first, request_id=name, mask=mask, params=silent) for name, mask in others)]


def _request_of(work: Assignment, request_id: str, mask: TokenMask | None, now: float) -> Request:
    wire = work.request
    return Request(
        request_id=request_id,
        group_id=wire.group,
        prompt_token_ids=wire.prompt_token_ids,
        params=wire.params,
        seed=wire.seed,
        max_tokens=wire.max_tokens,
        end_token_ids=wire.end_token_ids,
        arrival_s=now,
        cache_salt=wire.cache_salt,
        priority=wire.priority,
        objectives=wire.objectives,
        speculate=wire.speculate,
        mask=mask,
        resumed_token_ids=work.resumed,
    )


def wire_event(event: Event, numbers: Mapping[str, int]) -> WireToken | WirePrompt | WireEnd | None:
    """An event under the number of its stream; None where the front does not ask for it any more."""
    number = numbers.get(event.request_id)
    if number is None:
        return None
    if isinstance(event, TokenEvent):
        return WireToken(number, event.token_id, event.logprob)
    if isinstance(event, PromptEvent):
        return WirePrompt(number, event.logprobs)
    return WireEnd(
        number,
        event.reason,
        event.num_output_tokens,
        event.num_cached_tokens,
        event.num_preemptions,
        event.stopped_by,
        event.end_logprob,
        event.error,
        event.retry_after_s,
        event.score,
    )


def finished(
    request: Request, end: WireEnd, now: float, num_cached_tokens: int, first_scheduled_s: float | None
) -> FinishedEvent:
    """The end of a request, at the front's time. num_cached_tokens: at the stream's first start, wherever it went
    on."""
    return FinishedEvent(
        request_id=request.request_id,
        reason=end.reason,
        at_s=now,
        num_prompt_tokens=len(request.prompt_token_ids),
        num_output_tokens=end.num_output_tokens,
        num_cached_tokens=num_cached_tokens,
        num_preemptions=end.num_preemptions,
        first_scheduled_s=first_scheduled_s,
        stopped_by=end.stopped_by,
        end_logprob=end.end_logprob,
        error=end.error,
        retry_after_s=end.retry_after_s,
        score=end.score,
    )
