"""How much prefill a step may compute next to running streams, so that no gap between tokens is longer than promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.batch_decodes import decode_segment
from twostroke.engine.scheduler.limits.chunk_sizer import KEPT_SHARE, ChunkSizer
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence as Waiting
from twostroke.types.plan import Role

TTFT_SHARE = 0.25
"""A step in which no interactive sequence decodes may take this share of the TTFT objective. A request that arrives now
waits for the step's end."""


class ItlLimiter:
    """Satisfies `scheduler.limits.Limiter`: a chunk is cut so that the step keeps the tightest ITL objective of its
    streams. Where no stream has an ITL objective, `rule` bounds the gaps between their tokens, as in GapLimiter."""

    def __init__(
        self, times: StepTime, align_tokens: int, ttft_s: float | None = None, rule: GapRule | None = None
    ) -> None:
        self._times = times
        self._rule = rule or GapRule()
        self.sizer = ChunkSizer(times.now_s, align_tokens)
        self._idle_bound_s = None if ttft_s is None else TTFT_SHARE * ttft_s

    def limit(self, sequence: Waiting, wanted_tokens: int, step: StepLoad) -> int:
        """Returns all wanted tokens for sequences that decode. All others get what the tightest ITL objective leaves of
        the step."""
        if wanted_tokens == 0 or sequence.role is Role.DECODE:
            return wanted_tokens
        bound_s = self.bound_s(step.waiting())
        if bound_s is None:
            return wanted_tokens
        base = step.segments()
        chunk = self.sizer.chunk(
            *(base, sequence.computed, wanted_tokens, sequence.remaining),
            *(bound_s - step.encode_s, sequence.request.adapter),
        )
        return chunk.num_tokens if chunk.within or not step.num_prefill_tokens else 0

    def left_s(self, step: StepLoad) -> float:
        """Returns the seconds that the tightest ITL objective leaves of the step as planned so far; infinity without a
        bound."""
        bound_s = self.bound_s(step.waiting())
        return inf if bound_s is None else bound_s - self._times.now_s(step.segments())

    def bound_s(self, others: Sequence[Waiting]) -> float | None:
        """Returns the most seconds of a step in which the sequences in `others` wait for tokens; None when it has no
        bound. If no interactive one of them decodes, the bound is TTFT_SHARE of the TTFT objective, when there is one.
        """
        streams = [s for s in others if s.num_output and s.interactive]
        if not streams:
            return self._idle_bound_s
        return self.bound_beside_s(streams, [decode_segment(s) for s in streams])

    def bound_beside_s(self, promised: Sequence[Waiting], streams: list[Segment]) -> float | None:
        """Returns the most seconds of a step that computes `streams` next to prompts; None when it has no bound.
        promised: the sequences whose ITL objectives count. Without sequences in `promised`, TTFT_SHARE of the TTFT
        objective is the bound."""
        if not promised or not streams:
            return self._idle_bound_s
        promises = [s.objectives.itl_s for s in promised if s.objectives.itl_s is not None]
        if promises:
            return KEPT_SHARE * min(promises)
        return KEPT_SHARE * self._rule.bound_s(self._times.low_s, streams)
