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
"""A prediction of this many times the objective refuses: below, it may still turn out well. Infinity refuses nobody."""
OUTPUTS_KEPT = 32


@dataclass(frozen=True, slots=True)
class Room:
    """max_sequences: that may run at once. max_chunk_tokens: of a step. kept_share: of prefill that is for others."""

    max_sequences: int
    max_chunk_tokens: int
    kept_share: float


@dataclass(frozen=True, slots=True)
class Pace:
    """What prompts are computed beside: the streams of this moment, and what a step may take (None: as it likes)."""

    streams: Sequence[Segment]
    bound_s: float | None


class TtftGate:
    """Predicts the TTFT of a newcomer from the prompts ahead of it, and from when a place gets free.

    A prompt that alone takes longer than its objective at this pace is not refused for that: it would never be served.
    Its own time stands in place of the objective then. Without promise, and for batch work, the gate is open.
    """

    def __init__(self, times: StepTime, limiter: ItlLimiter, room: Room, refusal_factor: float) -> None:
        self._refusal_factor = refusal_factor
        self._times = times
        self._limiter = limiter
        self._room = room
        self._outputs = Window(OUTPUTS_KEPT)

    def check(self, newcomer: Waiting, queues: Queues, now: float) -> None:
        """Raises Overloaded where the newcomer would wait too long. Its prefill_tokens must be known."""
        if newcomer.objectives.ttft_s is None or not newcomer.interactive:
            return
        streams = queues.decoding
        pace = Pace([decode_segment(s) for s in streams], self._limiter.bound_s(streams))
        alone_s = self._prompts_s(pace, newcomer.prefill_tokens)
        waited_s = max(0.0, now - newcomer.request.arrival_s)
        predicted_s = waited_s + self._ttft_s(newcomer, queues, pace, now)
        wanted_s = max(newcomer.objectives.ttft_s, alone_s)
        if predicted_s > self._refusal_factor * wanted_s:
            raise Overloaded(
                "The request could not be answered in time.",
                retry_after_s=predicted_s - wanted_s,
                why=f"Its first token is expected after {predicted_s:.1f} s, and {newcomer.objectives.ttft_s:g} s is "
                f"the objective: {len(queues.waiting)} requests wait and {len(queues.running)} run.",
                fix=f"Try again in {predicted_s - wanted_s:.0f} s.",
            )

    def _ttft_s(self, newcomer: Waiting, queues: Queues, pace: Pace, now: float) -> float:
        """Seconds from now to its first token, if nobody else comes."""
        ahead = self._ahead(newcomer, queues, now)
        prompts_s = self._prompts_s(
            pace, newcomer.prefill_tokens + sum(min(s.remaining, s.prefill_tokens) for s in ahead)
        )
        if queues.waiting or queues.prefilling:
            prompts_s /= 1 - self._room.kept_share
        waiting = sum(s.admission is None for s in ahead)
        missing = waiting + 1 - max(0, self._room.max_sequences - len(queues.running))
        if missing <= 0:
            return prompts_s
        return max(prompts_s, self._place_s(missing, queues.running) + self._prompts_s(pace, newcomer.prefill_tokens))

    def ended(self, sequence: Waiting) -> None:
        """Learn how long answers are."""
        if sequence.num_output:
            self._outputs.add(sequence.num_output)

    def _ahead(self, newcomer: Waiting, queues: Queues, now: float) -> list[Waiting]:
        """Whose prompts come first: those in time with less slack; before one that is late from the start, all."""
        mine = start_by_s(newcomer)
        live = [s for s in (*queues.prefilling, *queues.waiting) if s.interactive]
        if mine < now:
            return live
        return [s for s in live if s.num_output or now <= start_by_s(s) <= mine]

    def _prompts_s(self, pace: Pace, tokens: int) -> float:
        """Of so many tokens, in chunks as steps beside these streams take them."""
        wanted = min(tokens, self._room.max_chunk_tokens)
        if wanted <= 1 or pace.bound_s is None:
            return self._times.usual_s([*pace.streams, Segment(0, wanted, True)]) * tokens / wanted
        chunk = self._limiter.sizer.chunk(pace.streams, 0, wanted, wanted, pace.bound_s)
        return chunk.seconds * tokens / chunk.num_tokens

    def _place_s(self, missing: int, running: Sequence[Waiting]) -> float:
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
        # Whoever enters brings a prompt: one for each answer's length in steps, beside every stream.
        prompts = sum(len(s.request.prompt_token_ids) for s in running) / (typical or left[-1])
        chunk = Segment(0, min(self._room.max_chunk_tokens, round(prompts)), True)
        streams = [decode_segment(s) for s in running]
        return steps * self._times.usual_s([*streams, chunk] if chunk.num_tokens else streams)
