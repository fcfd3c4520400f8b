"""The default limit of prefill next to running streams, when no latency was promised: gaps between tokens stay below a
bound."""

from __future__ import annotations

from math import inf

from msgspec import Struct

from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.chunk_sizer import KEPT_SHARE, ChunkSizer, Seconds
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.plan import Role

LEAST_GAP_S = 0.25
GAP_DECODE_STEPS = 8
MOST_DECODE_SHARE = 0.2
"""A step without prompts is called slow when it takes more than this share of `GapRule.least_s`. Then a gap may last
`GapRule.decode_steps` such steps."""


class GapRule(Struct, frozen=True):
    """How long the gap between two tokens of a stream may become because a prompt is computed in the same step.

    least_s: the bound in seconds. decode_steps: the bound as a number of steps without prompts; it counts where one
    step is so slow that least_s would leave little time for prompts. Both bounds are for the whole step, decode
    included.
    """

    least_s: float = LEAST_GAP_S
    decode_steps: int = GAP_DECODE_STEPS

    def __str__(self) -> str:
        slow_ms = 1e3 * MOST_DECODE_SHARE * self.least_s
        return (
            f"no gap of a running stream beyond {1e3 * self.least_s:g} ms, or {self.decode_steps} decode steps "
            f"where one takes more than {slow_ms:g} ms"
        )

    def bound_s(self, seconds: Seconds, streams: list[Segment]) -> float:
        """Returns the most seconds of a step with these streams: least_s, or decode_steps times the time of a slow
        step.

        seconds: predicts the time of a step that nothing disturbs. The usual, measured time is longer while other
        programs are busy, so the allowed gaps would grow with the load of the machine.
        """
        decode_s = seconds(streams)
        if decode_s <= MOST_DECODE_SHARE * self.least_s:
            return self.least_s
        return max(self.least_s, self.decode_steps * decode_s)


class GapLimiter:
    """Satisfies `scheduler.limits.Limiter` by a GapRule: a chunk next to running streams is cut so that the step keeps
    the rule. A step without streams is not limited.

    A step's first prompt always gets the least chunk. Further prompts get what the first one leaves of the bound.
    """

    def __init__(self, times: StepTime, align_tokens: int, rule: GapRule) -> None:
        self._times = times
        self._sizer = ChunkSizer(times.now_s, align_tokens)
        self.rule = rule

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns all wanted tokens for sequences that decode. A sequence in prefill gets as many tokens as fit into
        the time that the GapRule leaves of the step."""
        if wanted_tokens == 0 or sequence.role is Role.DECODE:
            return wanted_tokens
        streams = step.streams()
        if not streams:
            return wanted_tokens
        base, adapter = step.segments(), sequence.request.adapter
        whole = Segment.prefill(sequence.computed, wanted_tokens, wanted_tokens == sequence.remaining, adapter)
        whole_s = self._times.now_s([*base, whole]) + step.encode_s
        if whole_s <= KEPT_SHARE * self.rule.least_s:
            return wanted_tokens
        bound_s = KEPT_SHARE * self.rule.bound_s(self._times.low_s, streams)
        if whole_s <= bound_s:
            return wanted_tokens
        left_s = bound_s - step.encode_s
        chunk = self._sizer.chunk(base, sequence.computed, wanted_tokens, sequence.remaining, left_s, adapter)
        return chunk.num_tokens if chunk.within or not step.num_prefill_tokens else 0

    def left_s(self, step: StepLoad) -> float:
        """Returns how many seconds the step as planned so far may still take under the GapRule; infinity when no
        sequence decodes."""
        streams = step.streams()
        if not streams:
            return inf
        return KEPT_SHARE * self.rule.bound_s(self._times.low_s, streams) - self._times.now_s(step.segments())
