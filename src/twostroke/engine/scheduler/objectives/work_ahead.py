"""Predicts when a waiting sequence will have its first token. The prompts before it are computed first, and each
computed prompt becomes one more decoding sequence that slows down the rest."""

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
"""The number of groups into which the prompts before a sequence are divided when its TTFT is predicted; within a group
the number of decoding sequences is taken to be constant."""
MARGIN = 1.1
"""The factor by which the predicted seconds until a first token are multiplied. It makes up for steps that take longer
than the median, and for the rest of the current step, which must end first."""
UNSURE_MARGIN = 1.6
"""The factor that is used instead of MARGIN until measured steps have corrected the predictions: a late promise is
better than a broken one."""


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of a scheduler, as predictions need them. max_sequences: the most sequences that run at once.
    max_chunk_tokens: the most prefill tokens of a step. batch_share: the share of prefill that batch work (priority
    above 0) gets. turn_share: the share of steps that AgeingTurns reserves for the oldest sequence."""

    max_sequences: int
    max_chunk_tokens: int
    batch_share: float
    turn_share: float


class WorkAhead:
    """Predicts the TTFT of waiting sequences. Chunks are sized by the limiter that also sizes the real steps, and steps
    take their usual times."""

    def __init__(self, times: StepTime, limiter: ItlLimiter, room: Room) -> None:
        self._times = times
        self._limiter = limiter
        self._room = room
        self._lengths = AnswerLengths()

    @property
    def sure(self) -> bool:
        """True when the predictions rest on measured steps."""
        return self._times.sure and self._times.cold_factor == 1.0

    def ended(self, sequence: Waiting) -> None:
        """Learn the length of an answer that has ended."""
        self._lengths.ended(sequence)

    def alone_s(self, sequence: Waiting, queues: Queues) -> float:
        """Returns the seconds of the sequence's own prompt, its images included, if it were computed now next to the
        sequences that decode."""
        streams = queues.decoding
        segments = [decode_segment(s) for s in streams]
        return sequence.encode_s + sequence.prefill_tokens * self._token_s(sequence, streams, segments)

    def ttft_s(self, sequence: Waiting, queues: Queues, held: Iterable[Waiting] = ()) -> float:
        """Returns the seconds from now to the sequence's first token. Interactive sequences that come after it do not
        count.

        held: sequences without a promised TTFT that are computed before it as well.
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
        """Returns the share of prefill that sequences with a later rank get before this one is done. Batch work has a
        fixed share. Prompts that take longer than their objective have the share of steps that AgeingTurns reserves."""
        others = [s for s in (*queues.prefilling, *queues.waiting) if s.rank[1] == TOO_LONG or not s.interactive]
        share = self._room.batch_share if any(not s.interactive for s in others) else 0.0
        return share + (self._room.turn_share if any(s.interactive for s in others) else 0.0)

    def _prompts_s(self, sequence: Waiting, prompts: list[Waiting], streams: list[Waiting]) -> float:
        """Returns the seconds for computing these prompts one after the other. Each computed prompt is a decoding
        sequence next to the following prompts."""
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
        """Returns the seconds for each token of a prompt that is computed next to these decoding sequences, in chunks
        as large as their objectives allow."""
        wanted = max(1, self._room.max_chunk_tokens - len(segments))
        bound_s = self._limiter.bound_beside_s([*streams, sequence] if segments else [], segments)
        if bound_s is not None and wanted > 1:
            wanted = self._limiter.sizer.chunk(segments, 0, wanted, wanted, bound_s).num_tokens
        return self._times.usual_s([*segments, Segment.prefill(0, wanted, True)]) / wanted

    def _place_s(self, missing: int, running: Sequence[Waiting]) -> float:
        """Returns the seconds until `missing` sequences have ended, so that as many can be admitted. missing: it may be
        more than run now; then new ones must end too."""
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
    """Returns True when `other` is predicted to be computed before `sequence`. A held `other` (it waits without a
    promised TTFT) is computed after `sequence`, so the result is False."""
    if other.rank[1] == HELD or other is sequence:
        return False
    return other.rank < sequence.rank if sequence.rank[1] == TOO_LONG else other.rank[1] < HELD


def _tokens_left(sequence: Waiting) -> int:
    return max(1, min(sequence.remaining, sequence.prefill_tokens))
