"""The first frozen noun: what one engine step will compute.

Knows: token ids, page ids, counts.
Must not know: whether a plan is run, simulated or made to fail.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twostroke.types.request import Request


class PlannedSequence(NamedTuple):
    """Positions [start, start + num_tokens) of one request, computed in this step.

    known_token_ids: prompt and output so far; the live list, valid until `commit`, longer than the planned part where
    the prompt is chunked. page_ids: pages of positions [0, start + num_tokens), in order. samples: True where the last
    planned position is the last known one, so that its logits give the next token. scores: the planned positions whose
    logits give the log probability of the prompt token behind them, where the request asks for that.
    """

    request: Request
    start: int
    num_tokens: int
    known_token_ids: Sequence[int]
    page_ids: Sequence[int]
    samples: bool
    scores: range = range(0)

    @property
    def scored(self) -> int:
        """How many rows are for `scores`."""
        return len(self.scores)

    @property
    def num_output_tokens(self) -> int:
        """Output tokens made before this step (also the position that random draws are keyed by)."""
        return len(self.known_token_ids) - len(self.request.prompt_token_ids)


class Hold(enum.StrEnum):
    """Why the first of the waiting requests was not admitted."""

    TOKENS = "the step's token budget was full"
    SEQUENCES = "all places of the batch were taken"
    OBJECTIVE = "it would have made the others' tokens late"
    PAGES = "the KV pool had too few free pages"
    SIBLING = "another completion of the same request computed their prompt"


@dataclass(frozen=True, slots=True)
class Preemption:
    """A sequence that gave its pages back with num_computed positions in them. by: who needed them (itself: nobody
    else could give any)."""

    request_id: str
    by: str
    num_computed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. sequences: decoding ones first, then prefill chunks. preemptions: sequences put back in it.

    held: why the queue went no further; None where nobody is left waiting.
    """

    step_id: int
    sequences: tuple[PlannedSequence, ...]
    preemptions: tuple[Preemption, ...] = ()
    held: Hold | None = None

    @property
    def preempted(self) -> tuple[str, ...]:
        """Request ids put back in this step."""
        return tuple(preemption.request_id for preemption in self.preemptions)

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return sum(sequence.num_tokens for sequence in self.sequences)
