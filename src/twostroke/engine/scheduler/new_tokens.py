"""Appends the tokens that a step sampled to their sequences, and tells which sequences end with them."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from twostroke.engine.scheduler.admission import PageAdmission
from twostroke.engine.scheduler.ending import Ending
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.event import Event, TokenEvent
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import FinishReason
from twostroke.types.result import SampledToken


class NewTokens:
    """Takes in the tokens of steps. A sequence of a beam search is paused after each token."""

    def __init__(self, queues: Queues, pages: PageAdmission) -> None:
        self._queues, self._pages = queues, pages

    def take(
        self,
        sequence: Sequence,
        planned: PlannedSequence,
        sampled: Tokens[SampledToken],
        now: float,
        events: list[Event],
    ) -> Ending | None:
        """Append the tokens that a step sampled for a sequence, up to the first that differs from its guess. Returns
        why the sequence ends, or None.

        K and V of right guesses count as computed; those of wrong guesses do not.
        """
        if not planned.samples:
            return Ending(FinishReason.LENGTH) if planned.end == len(sequence.known) else None
        if not sampled:
            return Ending(FinishReason.ERROR, error="the step gave no token")
        ending = self._take_one(sequence, sampled[0], now, events)
        for guess, before, token in zip(planned.draft_token_ids, sampled, sampled[1:], strict=False):
            if ending is not None or before.token_id != guess:
                break
            sequence.computed += 1
            ending = self._take_one(sequence, token, now, events)
        return ending

    def _take_one(self, sequence: Sequence, sampled: SampledToken, now: float, events: list[Event]) -> Ending | None:
        request, token_id = sequence.request, sampled.token_id
        if request.params.use_beam_search:
            sequence.role = Role.DECODE
            self._queues.pause(sequence)
            events.append(TokenEvent(request.request_id, token_id, sampled.logprob, now))
            return None
        known = sequence.known
        num_output = len(known) - len(request.prompt_token_ids)
        if request.ends_with(token_id, num_output):
            return Ending(FinishReason.STOP, stopped_by=sampled)
        known.append(token_id)
        sequence.role, sequence.memory = Role.DECODE, sampled.memory
        if request.mask is not None:
            request.mask.feed(token_id)
        events.append(TokenEvent(request.request_id, token_id, sampled.logprob, now, sampled.memory))
        if num_output + 1 >= request.max_tokens:
            return Ending(FinishReason.LENGTH)
        if not self._pages.fits_ever(sequence):
            return Ending(FinishReason.ERROR, error=self._pages.too_long(sequence))
        return None
