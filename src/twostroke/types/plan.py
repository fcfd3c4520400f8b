"""The plan: what one engine step will compute. It never changes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from twostroke.types.images import ImageTile
from twostroke.types.request import Request


class Role(enum.StrEnum):
    """What a sequence does in a step. It never follows from the number of rows.

    PREFILL: computes tokens that are known already: a chunk of its prompt, or after a preemption its prompt and output
    once more. DECODE: computes the token that the step before gave it.
    """

    PREFILL = "prefill"
    DECODE = "decode"


class PlannedSequence(NamedTuple):
    """Positions [start, start + num_tokens) of one request, computed in this step.

    known_token_ids: prompt and output so far; the live list, valid until `commit`, longer than the planned part where
    the prompt is chunked. tables: for each page group (`program.cache_groups`), the pages of positions
    [0, start + num_tokens), in order; -1 for a page before the group's window, which is never read. samples: True where
    the last known position is planned, so that its logits give the next token. scores: the planned positions whose
    logits give the log probability of the prompt token after them, or whose rows are pooled, where the request asks
    for that. pooled: the sum of the rows that earlier steps gave, as in `StepResult`. state_slot: where its state lies
    in every state cache; -1 where the model has none.

    draft_token_ids: guesses of what follows the known tokens, computed at the last of the planned positions. What is
    sampled at a guess counts where it and all guesses before it are what was sampled. Empty where samples is False.

    alone: True to compute it by itself, because a step with these positions and others failed.
    memory: what its samplers know after its known tokens (`SampledToken.memory`).
    """

    request: Request
    start: int
    num_tokens: int
    known_token_ids: Sequence[int]
    tables: tuple[Sequence[int], ...]
    samples: bool
    role: Role
    scores: range = range(0)
    state_slot: int = -1
    draft_token_ids: tuple[int, ...] = ()
    pooled: bytes = b""
    alone: bool = False
    memory: tuple[float, ...] = ()

    @property
    def end(self) -> int:
        """The position after the planned ones."""
        return self.start + self.num_tokens

    @property
    def page_ids(self) -> Sequence[int]:
        """The first group's table; empty where the model keeps no K and V."""
        return self.tables[0] if self.tables else ()

    @property
    def adapter(self) -> int:
        """The request's."""
        return self.request.adapter

    @property
    def second_text(self) -> int | None:
        """Where the second of two texts begins; None where there is one."""
        return None if self.request.pooling is None else self.request.pooling.second_text

    @property
    def sampled_rows(self) -> int:
        """The last rows, whose logits are sampled: that of the last known token and those of the guesses."""
        return 1 + len(self.draft_token_ids) if self.samples else 0

    @property
    def logit_rows(self) -> int:
        """Rows that need logits."""
        return self.sampled_rows + len(self.scores)

    @property
    def token_ids(self) -> Sequence[int]:
        """What the planned positions hold."""
        end = self.start + self.num_tokens - len(self.draft_token_ids)
        known = self.known_token_ids[self.start : end]
        return [*known, *self.draft_token_ids] if self.draft_token_ids else known

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
    IMAGE = "its image was not encoded yet"
    CALL = "other completions of the same request had many places, and the last one was for another request"


PASSED_BY = (None, Hold.SIBLING, Hold.CALL, Hold.IMAGE)
"""Holds of one request alone: those after it may run."""


class Preemption(Struct, frozen=True):
    """A sequence that gave its pages back with num_computed positions in them. by: the sequence that needed them
    (the same one where no other could give any)."""

    request_id: str
    by: str
    num_computed: int


class Copies(NamedTuple):
    """What is copied before a step, each in order. states: (from slot, to slot) of every state cache; from -1 sets the
    slot to zero. pages: (group, from page, to page) of every layer of that page group."""

    states: tuple[tuple[int, int], ...] = ()
    pages: tuple[tuple[int, int, int], ...] = ()


NO_COPIES = Copies()


class EncodeTurn(NamedTuple):
    """The tile that a step works on, and the predicted seconds that its pieces may take."""

    tile: ImageTile | None = None
    seconds: float = 0.0


NO_TURN = EncodeTurn()


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. sequences: decoding ones first, then prefill chunks. preemptions: sequences put back in it.

    held: why the queue went no further; None where no request waits. state_copies, page_copies: done in order before
    the sequences are computed (`Copies`). num_draft_tokens: the draft tokens of all sequences together. encode: the
    tile of an image that is worked on in this step. encode_s: the predicted seconds that its pieces may take.
    """

    step_id: int
    sequences: tuple[PlannedSequence, ...]
    preemptions: tuple[Preemption, ...] = ()
    held: Hold | None = None
    state_copies: tuple[tuple[int, int], ...] = ()
    num_draft_tokens: int = 0
    page_copies: tuple[tuple[int, int, int], ...] = ()
    encode: ImageTile | None = None
    encode_s: float = 0.0

    @property
    def preempted(self) -> tuple[str, ...]:
        """Request ids put back in this step."""
        return tuple(preemption.request_id for preemption in self.preemptions)

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return sum(sequence.num_tokens for sequence in self.sequences)
