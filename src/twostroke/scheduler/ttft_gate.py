"""Early refusal: who could not have its first token in time is told so at once, and when to come again.

Knows: queues, promises, predicted step times.
Must not know: HTTP, pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.cost.shape import Segment
from twostroke.scheduler.batch_decodes import decode_segment
from twostroke.scheduler.itl_limiter import ItlLimiter
from twostroke.scheduler.queues import Queues
from twostroke.scheduler.sequence import Sequence as Waiting
from twostroke.scheduler.slack_order import start_by_s
from twostroke.scheduler.step_time import StepTime
from twostroke.scheduler.window import Window
from twostroke.types.errors import Overloaded

REFUSAL_FACTOR = 1.5
"""A prediction this many times the objective refuses: below, it may still turn out well."""
OUTPUTS_KEPT = 32


@dataclass(frozen=True, slots=True)
class Room:
    """max_sequences: that may run at once. max_chunk_tokens: of a step. kept_share: of prefill that is for others."""

    max_sequences: int
    max_chunk_tokens: int
    kept_share: float


class TtftGate:
    """Predicts the TTFT of a newcomer from the prompts ahead of it, and from when a place gets free.

    A prompt that takes longer than its objective when it is alone is not refused for that: it would never be served.
    Its own time stands in place of the objective then. Without promise, and for batch work, the gate is open.
    """

    def __init__(self, times: StepTime, limiter: ItlLimiter, room: Room) -> None:
        self._times = times
        self._limiter = limiter
        self._room = room
        self._outputs = Window(OUTPUTS_KEPT)

    def check(self, newcomer: Waiting, own_tokens: int, queues: Queues, now: float) -> None:
        """Raises Overloaded where the newcomer would wait too long. own_tokens: of its prompt that must be computed."""
        if newcomer.objectives.ttft_s is None or not newcomer.interactive:
            return
        waited_s = max(0.0, now - newcomer.request.arrival_s)
        predicted_s = waited_s + self.ttft_s(newcomer, own_tokens, queues)
        wanted_s = max(newcomer.objectives.ttft_s, newcomer.prefill_s)
        if predicted_s > REFUSAL_FACTOR * wanted_s:
            raise Overloaded(
                "The request could not be answered in time.",
                retry_after_s=predicted_s - wanted_s,
                why=f"Its first token is expected after {predicted_s:.1f} s, and {newcomer.objectives.ttft_s:g} s is "
                f"the objective: {len(queues.waiting)} requests wait and {len(queues.running)} run.",
                fix=f"Try again in {predicted_s - wanted_s:.0f} s.",
            )

    def ttft_s(self, newcomer: Waiting, own_tokens: int, queues: Queues) -> float:
        """Seconds from now to its first token, if nobody else comes."""
        ahead = self._ahead(newcomer, queues)
        streams = queues.decoding
        base = [decode_segment(s) for s in streams]
        bound_s = self._limiter.bound_s(streams)
        tokens = own_tokens + sum(s.remaining for s in ahead)
        prompts_s = self._prefill_s(base, tokens, bound_s) / (1 - self._room.kept_share)
        if not tokens:
            prompts_s = self._times.usual_s([*base, Segment(0, 1, True)])
        waiting = sum(s.admission is None for s in ahead)
        missing = waiting + 1 - max(0, self._room.max_sequences - len(queues.running))
        if missing <= 0:
            return prompts_s
        return max(prompts_s, self._place_s(missing, queues.running, base, bound_s) + newcomer.prefill_s)

    def ended(self, sequence: Waiting) -> None:
        """Learn how long answers are."""
        if sequence.num_output:
            self._outputs.add(sequence.num_output)

    def _ahead(self, newcomer: Waiting, queues: Queues) -> list[Waiting]:
        """Whose prompts come first: those with less slack."""
        mine = start_by_s(newcomer)
        found = [s for s in queues.prefilling if s.interactive and start_by_s(s) <= mine]
        for waiting in queues.waiting:
            if not waiting.interactive or start_by_s(waiting) > mine:
                break
            found.append(waiting)
        return found

    def _prefill_s(self, base: Sequence[Segment], tokens: int, bound_s: float | None) -> float:
        """Of so many tokens, in chunks as steps beside these streams take them."""
        wanted = min(tokens, self._room.max_chunk_tokens)
        if wanted <= 1 or bound_s is None:
            seconds = self._times.usual_s([*base, Segment(0, max(1, wanted), True)])
            return seconds * tokens / max(1, wanted)
        chunk = self._limiter.chunk(base, 0, wanted, wanted, bound_s)
        return chunk.seconds * tokens / chunk.num_tokens

    def _place_s(
        self, missing: int, running: Sequence[Waiting], base: Sequence[Segment], bound_s: float | None
    ) -> float:
        """Until so many running sequences have ended, if answers are as long as the last ones were."""
        typical = self._outputs.quantile(0.5)
        left = sorted(
            max(1.0, min(s.request.max_tokens, typical if typical else s.request.max_tokens) - s.num_output)
            for s in running
        )
        if not left:
            return 0.0
        rounds, place = divmod(missing - 1, len(left))
        steps = left[place] + rounds * (typical or left[-1])
        return steps * max(self._times.usual_s(base), bound_s or 0.0)
