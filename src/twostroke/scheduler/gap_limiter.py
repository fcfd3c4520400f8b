"""How much of a prompt a step may hold beside running streams where nothing was promised: the default.

Knows: predicted step times, which sequences of a step are streams.
Must not know: objectives, queues, pages, which cost model predicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.cost.shape import Segment
from twostroke.scheduler.chunk_sizer import KEPT_SHARE, ChunkSizer, Seconds
from twostroke.scheduler.limits import StepLoad
from twostroke.scheduler.sequence import Sequence
from twostroke.scheduler.step_time import StepTime

LEAST_GAP_S = 0.25
GAP_DECODE_STEPS = 8


@dataclass(frozen=True, slots=True)
class GapRule:
    """How long the gap between two tokens of a stream may become because a prompt is computed beside it.

    least_s: seconds that are always allowed. decode_steps: so many steps without prompts are allowed, too: on a machine
    on which one step is slow, a bound in seconds would leave no room for prompts.
    """

    least_s: float = LEAST_GAP_S
    decode_steps: int = GAP_DECODE_STEPS

    def __str__(self) -> str:
        return f"no gap of a running stream beyond {self.decode_steps} decode steps or {1e3 * self.least_s:g} ms"

    def bound_s(self, seconds: Seconds, streams: list[Segment]) -> float:
        """Seconds that a step beside these streams may take. seconds: of a step, as it usually is."""
        return max(self.least_s, self.decode_steps * seconds(streams))


class GapLimiter:
    """Satisfies `scheduler.limits.Limiter`. A step without streams is not made shorter.

    A step's first prompt always gets the least chunk; further ones get what the first leaves of the bound.
    """

    def __init__(self, times: StepTime, align_tokens: int, rule: GapRule) -> None:
        self._times = times
        self._sizer = ChunkSizer(times.high_s, align_tokens)
        self.rule = rule

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Streams pass; who has more to compute gets what the rule leaves beside them."""
        if wanted_tokens == 0 or (sequence.remaining == 1 and sequence.admission is not None):
            return wanted_tokens
        streams = step.streams()
        if not streams:
            return wanted_tokens
        base = step.segments()
        whole_s = self._times.high_s(
            [*base, Segment(sequence.computed, wanted_tokens, wanted_tokens == sequence.remaining)]
        )
        if whole_s <= KEPT_SHARE * self.rule.least_s:
            return wanted_tokens
        bound_s = KEPT_SHARE * self.rule.bound_s(self._times.usual_s, streams)
        if whole_s <= bound_s:
            return wanted_tokens
        chunk = self._sizer.chunk(base, sequence.computed, wanted_tokens, sequence.remaining, bound_s)
        return chunk.num_tokens if chunk.within or not step.num_prefill_tokens else 0
