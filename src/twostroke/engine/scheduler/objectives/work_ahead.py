"""Predicts when a waiting sequence will have its first token: the prompts before it are computed next to more and more
streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.batch_decodes import decode_segment
from twostroke.engine.scheduler.limits.itl_limiter import ItlLimiter
from twostroke.engine.scheduler.objectives.answer_lengths import AnswerLengths
from twostroke.engine.scheduler.objectives.promise_order import HELD, TOO_LONG
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence as Waiting

MAX_GROUPS = 6
"""The number of groups into which the prompts ahead are divided; each group runs next to more streams than the last."""
MARGIN = 1.1
"""The factor on predicted seconds, for steps that take longer than the median and for the end of the current step."""
UNSURE_MARGIN = 1.6
"""The factor in place of MARGIN while no prediction was corrected yet: a late promise is better than a broken one."""


@dataclass(frozen=True, slots=True)
class Room:
    """max_sequences: how many sequences may run at once. max_chunk_tokens: the most tokens of one step's prefill.

    batch_share, turn_share: the shares of prefill that batch work and turns of the oldest have.
    """

    max_sequences: int
    max_chunk_tokens: int
    batch_share: float
    turn_share: float


class WorkAhead:
    """Predicts with the same limiter that sizes the steps, and with usual step times."""

    def __init__(self, times: StepTime, limiter: ItlLimiter, room: Room) -> None:
        self._times = times
        self._limiter = limiter
        self._room = room
        self._lengths = AnswerLengths()

    @property
    def sure(self) -> bool:
        """True when the predictions rest on evidence."""
        return self._times.sure and self._times.cold_factor == 1.0

    def ended(self, sequence: Waiting) -> None:
        """Learn how long answers are."""
        self._lengths.ended(sequence)

    def alone_s(self, sequence: Waiting, queues: Queues) -> float:
        """Returns the seconds of the sequence's own prompt, its images included, next to the streams of this moment."""
        streams = queues.decoding
        segments = [decode_segment(s) for s in streams]
        return sequence.encode_s + sequence.prefill_tokens * self._token_s(sequence, streams, segments)

    def ttft_s(self, sequence: Waiting, queues: Queues, held: Iterable[Waiting] = ()) -> float:
        """Returns the seconds from now to the sequence's first token. Sequences that come later are computed later.

        held: the sequences without a promise that are computed before it as well.
        """
        ahead = sorted(
            [s for s in (*queues.prefilling, *queues.waiting) if s.interactive and _before(s, sequence)],
            key=lambda s: s.rank,
        )
        margin = (MARGIN if self.sure else UNSURE_MARGIN) * self._times.cold_factor
        ahead += held
        prompts_s = margin * self._prompts_s(sequence, [*ahead, sequence], queues.decoding)
        prompts_s /= 1 - self._others_share(sequence, queues)
        waiting = sum(s.admission is None for s in ahead)
        missing = waiting + 1 - max(0, self._room.max_sequences - len(queues.running))
        if missing <= 0:
            return prompts_s
        place_s = margin * self._place_s(missing, queues.running)
        return max(prompts_s, place_s + self.alone_s(sequence, queues))

    def _others_share(self, sequence: Waiting, queues: Queues) -> float:
        """Returns the share of the prompts' time that later sequences get in any case: batch work by its share, and
        sequences whose prompts are too long by their turns."""
        others = [s for s in (*queues.prefilling, *queues.waiting) if s.rank[1] == TOO_LONG or not s.interactive]
        share = self._room.batch_share if any(not s.interactive for s in others) else 0.0
        return share + (self._room.turn_share if any(s.interactive for s in others) else 0.0)

    def _prompts_s(self, sequence: Waiting, prompts: list[Waiting], streams: list[Waiting]) -> float:
        """Returns the seconds of prompts one after the other. Each computed prompt is a stream next to the following
        prompts."""
        segments = [decode_segment(s) for s in streams]
        size, seconds = -(-len(prompts) // MAX_GROUPS), 0.0
        for first in range(0, len(prompts), size):
            group = prompts[first : first + size]
            tokens = sum(_tokens_left(s) for s in group)
            seconds += tokens * self._token_s(sequence, streams or prompts[:first], segments)
            seconds += sum(s.encode_s for s in group)
            segments += [decode_segment(s) for s in group if s.request.max_tokens > 1]
        return seconds

    def _token_s(self, sequence: Waiting, streams: Sequence[Waiting], segments: list[Segment]) -> float:
        """Returns the seconds for each token of a prompt, in chunks of the size that steps next to these segments take.
        """
        wanted = max(1, self._room.max_chunk_tokens - len(segments))
        bound_s = self._limiter.bound_beside_s([*streams, sequence] if segments else [], segments)
        if bound_s is not None and wanted > 1:
            wanted = self._limiter.sizer.chunk(segments, 0, wanted, wanted, bound_s).num_tokens
        return self._times.usual_s([*segments, Segment.prefill(0, wanted, True)]) / wanted

    def _place_s(self, missing: int, running: Sequence[Waiting]) -> float:
        """Returns the seconds until `missing` running sequences have ended. missing: may be more than run now."""
        if not running:
            return 0.0
        rounds, place = divmod(missing - 1, len(running))
        steps: float = self._lengths.forecast(running).steps_until(place + 1)
        typical = max(1.0, self._lengths.mean_tokens or max(s.request.max_tokens for s in running))
        steps += rounds * typical
        # Each sequence that enters brings a prompt. Each stream makes room for one such prompt in `typical` steps, the
        # length of an answer.
        prompts = sum(len(s.request.prompt_token_ids) for s in running) / typical
        chunk = Segment.prefill(0, min(self._room.max_chunk_tokens, round(prompts)), True)
        streams = [decode_segment(s) for s in running]
        return steps * self._times.usual_s([*streams, chunk] if chunk.num_tokens else streams)


def _before(other: Waiting, sequence: Waiting) -> bool:
    """Returns True when `other` is computed first. Ranks decide; held sequences begin after all promises."""
    if other.rank[1] == HELD or other is sequence:
        return False
    return other.rank < sequence.rank if sequence.rank[1] == TOO_LONG else other.rank[1] < HELD


def _tokens_left(sequence: Waiting) -> int:
    return max(1, min(sequence.remaining, sequence.prefill_tokens))
