"""Decides why a sequence ends, and makes the event for it."""

from __future__ import annotations

from msgspec import Struct

from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.errors import Overloaded
from twostroke.types.event import FinishedEvent
from twostroke.types.request import FinishReason
from twostroke.types.result import SampledToken


class Ending(Struct, frozen=True):
    """Why a sequence ends, and what its last event contains. stopped_by: the end token. refusal: the error when the
    sequence is refused because it would have been late. num_output_tokens: the number to report instead of the
    sequence's own; a caller that finds a stop string in the text leaves out later tokens."""

    reason: FinishReason
    stopped_by: SampledToken | None = None
    error: str | None = None
    refusal: Overloaded | None = None
    num_output_tokens: int | None = None

    def event(self, sequence: Sequence, now: float) -> FinishedEvent:
        """Returns the event for the end of this sequence."""
        stopped_by, refusal, counted = self.stopped_by, self.refusal, self.num_output_tokens
        return FinishedEvent(
            request_id=sequence.request.request_id,
            reason=self.reason,
            at_s=now,
            num_prompt_tokens=len(sequence.request.prompt_token_ids),
            num_output_tokens=sequence.num_output if counted is None else counted,
            num_cached_tokens=sequence.num_cached_tokens or 0,
            num_preemptions=sequence.num_preemptions,
            first_scheduled_s=sequence.first_scheduled_s,
            stopped_by=None if stopped_by is None else stopped_by.token_id,
            end_logprob=None if stopped_by is None else stopped_by.logprob,
            error=self.error if refusal is None else str(refusal),
            retry_after_s=None if refusal is None else refusal.retry_after_s,
            prefix_miss=sequence.prefix_miss,
        )
