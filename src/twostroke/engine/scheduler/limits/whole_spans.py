"""The rule for images whose rows see each other: they are computed in one step, so a chunk ends before them or contains
them all."""

from __future__ import annotations

from msgspec import Struct

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.images import ImageSpan
from twostroke.types.plan import Role


class WholeSpans(Struct, frozen=True):
    """Satisfies `limits.Limiter` for image spans whose rows see each other: no chunk ends inside one. A span at the
    beginning of a chunk gets all of its rows, even when an earlier limit would have cut it. A span is not added to a
    step in which sequences decode and another prompt is computed. The gap between tokens therefore grows by one image
    at most. This limit is the last of a scheduler's limits.

    max_step_tokens: the most rows of a step. max_chunk_tokens: the most rows of one chunk.
    """

    max_step_tokens: int
    max_chunk_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns the most positions, up to wanted_tokens, with which the chunk does not end inside a span; 0 when the
        next span waits for a step with room."""
        start, cut = sequence.computed, cut_span(sequence, wanted_tokens)
        if cut is None:
            return wanted_tokens
        if cut.first > start:
            return cut.first - start
        room = min(self.max_step_tokens - step.num_tokens, self.max_chunk_tokens)
        waits = cut.end - start > room or (step.num_prefill_tokens and step.streams())
        return 0 if waits else cut.end - start


def cut_span(sequence: Sequence, wanted_tokens: int) -> ImageSpan | None:
    """Returns the image span inside of which a chunk of wanted_tokens would end, if the span's rows see each other;
    None where there is none."""
    images = sequence.request.images
    if not images or wanted_tokens == 0 or sequence.role is Role.DECODE:
        return None
    end = sequence.computed + wanted_tokens
    return next((span for span in images if span.together and span.first < end < span.end), None)
