"""Requests and events to frames, and back.

Knows: both shapes.
Must not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from twostroke.fleet.wire import Assignment, WireEnd, WireLogprob, WirePrompt, WireRequest, WireToken
from twostroke.types.event import Event, FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.grammar import TokenMask
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.request import Request
from twostroke.types.result import TokenLogprob


def wire_request(request: Request, now: float) -> WireRequest:
    """For another process. Its mask stays here: the replica makes one of its own from params.grammar."""
    objectives = request.objectives
    return WireRequest(
        group=request.group_id,
        prompt_token_ids=request.prompt_token_ids,
        params=request.params,
        seed=request.seed,
        max_tokens=request.max_tokens,
        end_token_ids=request.end_token_ids,
        cache_salt=request.cache_salt,
        priority=request.priority,
        ttft_s=None if objectives is None else objectives.ttft_s,
        itl_s=None if objectives is None else objectives.itl_s,
        waited_s=max(0.0, now - request.arrival_s),
        speculate=request.speculate,
    )


def request_of(work: Assignment, request_id: str, mask: TokenMask | None, now: float) -> Request:
    """In the replica, at its own time. mask: has taken in `work.resumed`."""
    wire = work.request
    objectives = LatencyObjectives(wire.ttft_s, wire.itl_s)
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
        objectives=objectives if objectives.any else None,
        speculate=wire.speculate,
        mask=mask,
        resumed_token_ids=work.resumed,
    )


def wire_logprob(found: TokenLogprob | None) -> WireLogprob | None:
    """None stays None."""
    return None if found is None else WireLogprob(found.token_id, found.logprob, found.top)


def logprob_of(wire: WireLogprob) -> TokenLogprob:
    """The same numbers."""
    return TokenLogprob(wire.token_id, wire.logprob, wire.top)


def wire_event(event: Event, numbers: Mapping[str, int]) -> WireToken | WirePrompt | WireEnd | None:
    """An event under the number of its stream; None where the front does not ask for it any more."""
    number = numbers.get(event.request_id)
    if number is None:
        return None
    if isinstance(event, TokenEvent):
        return WireToken(number, event.token_id, wire_logprob(event.logprob))
    if isinstance(event, PromptEvent):
        return WirePrompt(number, tuple(WireLogprob(e.token_id, e.logprob, e.top) for e in event.logprobs))
    return WireEnd(
        number,
        event.reason,
        event.num_output_tokens,
        event.num_cached_tokens,
        event.num_preemptions,
        event.stopped_by,
        wire_logprob(event.end_logprob),
        event.error,
        event.retry_after_s,
    )


def finished(
    request: Request, end: WireEnd, now: float, num_cached_tokens: int, first_scheduled_s: float | None
) -> FinishedEvent:
    """At the front's time. num_cached_tokens: at the stream's first start, wherever it went on."""
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
        end_logprob=None if end.end_logprob is None else logprob_of(end.end_logprob),
        error=end.error,
        retry_after_s=end.retry_after_s,
    )
