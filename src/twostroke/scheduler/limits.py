"""Limits of a step as small objects: limit(sequence, wanted, step) -> how many positions may be computed.

A new feature that shortens what a step computes is one more object in the scheduler's tuple, not a branch.

Knows: sequences, what the step holds so far.
Must not know: pages, queues.
"""

from __future__ import annotations

from collections.abc import Sequence as Positions
from dataclasses import dataclass, field
from typing import Protocol

from twostroke.cost.shape import Segment
from twostroke.scheduler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """max_step_tokens: rows of a step. max_sequences: sequences of a step, and running ones.

    watermark_pages: pages that an admission leaves free, so that running sequences can grow.
    """

    max_step_tokens: int = 512
    max_sequences: int = 64
    watermark_pages: int = 2


@dataclass(slots=True)
class StepLoad:
    """What a step holds so far. parts: each sequence with its rows. num_decode_tokens: rows of the running sequences
    with one position to compute, once all of them are in: they are first.

    num_streams: sequences, with one row each, that are in it and not among the parts (`SteadyDecode.begin_one`);
    stream_starts: the position that each of them computes.
    full: a limit cut somebody short, so nobody else gets more.
    """

    num_tokens: int = 0
    num_decode_tokens: int = 0
    num_streams: int = 0
    stream_starts: Positions[int] = ()
    full: bool = False
    parts: list[tuple[Sequence, int]] = field(default_factory=list)

    @property
    def num_sequences(self) -> int:
        """Sequences so far."""
        return self.num_streams + len(self.parts)

    @property
    def num_prefill_tokens(self) -> int:
        """Rows of prompts; who enters with one position left to compute is one of them."""
        return self.num_tokens - self.num_decode_tokens

    def segments(self) -> list[Segment]:
        """What a cost model must know of the step as it is planned so far."""
        found = [Segment(start, 1, True) for start in self.stream_starts]
        return found + [Segment(s.computed, num_tokens, num_tokens == s.remaining) for s, num_tokens in self.parts]

    def streams(self) -> list[Segment]:
        """Of those whose readers have tokens already and wait for the next one."""
        found = [Segment(start, 1, True) for start in self.stream_starts]
        return found + [Segment(s.computed, 1, True) for s, rows in self.parts if rows == 1 and s.num_output]

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """One more sequence, before it is computed."""
        self.num_tokens += num_tokens
        self.parts.append((sequence, num_tokens))


class Limiter(Protocol):
    """One reason to compute less."""

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """At most wanted_tokens; 0 leaves the sequence out of this step."""


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """A step has at most max_step_tokens rows."""

    max_step_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """What is left of the budget."""
        left = self.max_step_tokens - step.num_tokens
        return wanted_tokens if wanted_tokens <= left else max(0, left)


@dataclass(frozen=True, slots=True)
class SequenceBudget:
    """A step has at most max_sequences sequences."""

    max_sequences: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Everything or nothing."""
        return wanted_tokens if step.num_streams + len(step.parts) < self.max_sequences else 0
