"""Limits of a step as small objects: limit(sequence, wanted, step) -> how many positions may be computed.

A new feature that shortens what a step computes is one more object in the scheduler's tuple, not a branch.
"""

from __future__ import annotations

from collections.abc import Sequence as Positions
from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

from msgspec import Struct, field

from twostroke.cost.shape import Segment
from twostroke.cost.span_pieces import SpanWalk
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.images import later_pairs
from twostroke.types.plan import Role


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The fixed limits of a scheduler. max_step_tokens: the most rows of a step. max_sequences: the most sequences of a
    step, and the most running ones.

    watermark_pages: the pages that an admission leaves free, so that running sequences can grow. max_draft_tokens: the
    most guesses that a step verifies, of all sequences together. whole_prompts: a prompt is computed in one step or not
    at all. plans_in_flight: the plans that may be made before the first of them is committed: the stages of a pipeline.
    spare_tokens: a sequence that samples also gets pages for this many positions after those of the step, when there
    are enough pages. An executor may then begin its next step early.
    """

    max_step_tokens: int = 512
    max_sequences: int = 64
    watermark_pages: int = 2
    max_draft_tokens: int = 0
    whole_prompts: bool = False
    plans_in_flight: int = 1
    spare_tokens: int = 0


class SpanTurn(Struct, frozen=True, eq=False):
    """A decision that the step computes pieces of an image span (positions of one image) for `left_s` seconds.
    sequence: the span's sequence. end: the position after the span. walk: gives the pieces of the span that are not
    computed yet, in order. least: whether the smallest next piece is computed even when it takes longer than left_s."""

    sequence: Sequence
    end: int
    walk: SpanWalk
    left_s: float
    least: bool


class StepLoad(Struct):
    """What a step computes, as far as it is planned; limiters look at it. parts: each sequence with its number of rows.
    num_decode_tokens: the rows of the decoding sequences, which are planned before all others; 0 until all of them are
    planned.

    full: True when a limit made one sequence's part of the step shorter. No further sequence is then added. elsewhere:
    the sequences that decode in other plans of a pipeline. A long step delays their tokens, too. encode_s: the seconds
    that an image encode in this step may take. span: the image span whose pieces the step computes; its sequence is not
    in `parts`. span_s: the predicted seconds of these pieces.
    """

    num_tokens: int = 0
    num_decode_tokens: int = 0
    full: bool = False
    parts: list[tuple[Sequence, int]] = field(default_factory=list)
    elsewhere: Positions[Sequence] = ()
    encode_s: float = 0.0
    span: SpanTurn | None = None
    span_s: float = 0.0

    @property
    def num_sequences(self) -> int:
        """The number of sequences that the step has so far."""
        return len(self.parts)

    @property
    def num_prefill_tokens(self) -> int:
        """The number of rows that belong to sequences in prefill."""
        return self.num_tokens - self.num_decode_tokens

    def segments(self) -> list[Segment]:
        """Returns the segments of the step as it is planned so far, for a cost model."""
        found = []
        for sequence, rows in self.parts:
            drafts = max(0, rows - sequence.remaining)
            samples = rows >= sequence.remaining
            adapter, start = sequence.request.adapter, sequence.computed
            images = sequence.request.images
            later = later_pairs(images, start, start + rows) if images else 0
            found.append(Segment(start, rows, samples, sequence.role, drafts=drafts, adapter=adapter, later=later))
        return found

    def streams(self) -> list[Segment]:
        """Returns the segments of the sequences that decode, in this plan or in another one of a pipeline: their
        readers wait for the next token."""
        own = [Segment.decode(s.computed, s.request.adapter) for s, _ in self.parts if s.role is Role.DECODE]
        return own + [Segment.decode(s.computed, s.request.adapter) for s in self.elsewhere] if self.elsewhere else own

    def waiting(self) -> list[Sequence]:
        """Returns all sequences whose next tokens this step delays: its own sequences, and those that decode in other
        plans of a pipeline."""
        return [*(sequence for sequence, _ in self.parts), *self.elsewhere]

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """Add a sequence and its rows to the step, before it is computed."""
        self.num_tokens += num_tokens
        self.parts.append((sequence, num_tokens))


class Limiter(Protocol):
    """One rule that may lower the number of tokens that a step computes of a sequence."""

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns how many tokens the sequence may have, at most wanted_tokens; 0 leaves it out of this step."""


@runtime_checkable
class TimeLimiter(Limiter, Protocol):
    """A Limiter that bounds the seconds of a step."""

    def left_s(self, step: StepLoad) -> float:
        """Returns the seconds that the step may still take, as it is planned so far; infinity without a bound."""


def time_left_s(step: StepLoad, limiters: Positions[Limiter]) -> float:
    """Returns the seconds that the tightest TimeLimiter leaves of the step, less the predicted seconds of the image
    pieces in it."""
    found = min((each.left_s(step) for each in limiters if isinstance(each, TimeLimiter)), default=inf)
    return found - step.span_s


class TokenBudget(Struct, frozen=True):
    """A limit: a step has at most max_step_tokens rows."""

    max_step_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns at most the rows that are left of the budget."""
        left = self.max_step_tokens - step.num_tokens
        return wanted_tokens if wanted_tokens <= left else max(0, left)


class SequenceBudget(Struct, frozen=True):
    """A limit: a step has at most max_sequences sequences."""

    max_sequences: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns all wanted tokens, or 0 when the step has its most sequences already."""
        return wanted_tokens if step.num_sequences < self.max_sequences else 0


class WholePrompts(Struct, frozen=True):
    """Computes each prompt in one step, for models whose positions see each other in both directions. It is the last of
    a scheduler's limits."""

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns all wanted tokens when they are the whole rest of the prompt, else 0."""
        return wanted_tokens if wanted_tokens == sequence.remaining else 0


def budgets_of(limits: SchedulerLimits) -> tuple[Limiter, ...]:
    """Returns the limits of rows and sequences, which every scheduler has."""
    return SequenceBudget(limits.max_sequences), TokenBudget(limits.max_step_tokens)
