"""The plan: what one engine step will compute. It never changes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from twostroke.types.encode import AS_PREDICTED, EncodePace, SpanPiece
from twostroke.types.images import ImageTile, later_pairs
from twostroke.types.request import Request


class Role(enum.StrEnum):
    """What a sequence does in a step. The role never follows from the number of rows.

    PREFILL: computes tokens that are known already: a chunk of its prompt, or after a preemption its prompt and output
    once more. DECODE: computes the token that the step before gave it.
    """

    PREFILL = "prefill"
    DECODE = "decode"


class PlannedSequence(NamedTuple):
    """Positions [start, start + num_tokens) of one request, computed in this step.

    known_token_ids: prompt and output so far; the live list, valid until `commit`. It is longer than the planned part
    where the prompt is chunked. tables: for each page group (`program.cache_groups`), the pages of positions [0, start
    + num_tokens), in order; -1 for a page before the group's window, which is never read. samples: True where the last
    known position is planned, so that its logits give the next token. scores: the planned prompt positions whose rows
    the head needs, for the log probability of the next prompt token or for pooling. pooled: for a pooled prompt, the
    sum of its rows in earlier steps, float64 numbers as bytes. state_slot: the slot of its state in every state cache;
    -1 where the model has no states.

    draft_token_ids: guesses of the tokens after the known ones; their positions are the last planned ones. The token
    sampled after a guess counts only if this guess and all guesses before it equal the sampled tokens. There are none
    where samples is False.

    alone: True to compute the sequence by itself, because a step with these positions and others failed. memory: the
    state of its samplers (such as mirostat's) after its known tokens (`SampledToken.memory`).
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
        """The page table of the first group; empty where the model keeps no K and V."""
        return self.tables[0] if self.tables else ()

    @property
    def adapter(self) -> int:
        """The number of the request's adapter; -1 for none."""
        return self.request.adapter

    @property
    def second_text(self) -> int | None:
        """The position where the second text of a pair, as a reranker scores it, begins; None where the prompt is one
        text."""
        return None if self.request.pooling is None else self.request.pooling.second_text

    @property
    def sampled_rows(self) -> int:
        """The number of rows at the end whose logits are sampled: the row of the last known token and the rows of the
        guesses."""
        return 1 + len(self.draft_token_ids) if self.samples else 0

    @property
    def logit_rows(self) -> int:
        """The number of rows that need logits."""
        return self.sampled_rows + len(self.scores)

    @property
    def later(self) -> int:
        """The number of pairs of planned positions, beyond causal attention, in which the earlier position sees the
        later one. Rows of an image may see each other in this way."""
        return later_pairs(self.request.images, self.start, self.end) if self.request.images else 0

    @property
    def token_ids(self) -> Sequence[int]:
        """The tokens at the planned positions."""
        end = self.start + self.num_tokens - len(self.draft_token_ids)
        known = self.known_token_ids[self.start : end]
        return [*known, *self.draft_token_ids] if self.draft_token_ids else known

    @property
    def num_output_tokens(self) -> int:
        """The number of output tokens made before this step. It is also the position that random draws are keyed by."""
        return len(self.known_token_ids) - len(self.request.prompt_token_ids)


class Hold(enum.StrEnum):
    """Why the first request of the waiting queue was not admitted to the step."""

    TOKENS = "the step's token budget was full"
    SEQUENCES = "all places of the batch were taken"
    OBJECTIVE = "it would have made the others' tokens late"
    PAGES = "the KV pool had too few free pages"
    SIBLING = "another completion of the same request computed their prompt"
    IMAGE = "its image was not encoded yet"
    CALL = "other completions of the same request had many places, and the last one was for another request"


PASSED_BY = (None, Hold.SIBLING, Hold.CALL, Hold.IMAGE)
"""Reasons for which one request waits while the requests after it in the queue may still be admitted. None: no request
waits."""


class Preemption(Struct, frozen=True):
    """A sequence that gave its pages back when num_computed of its positions were computed. by: the id of the sequence
    that needed the pages (the same sequence where no other could give any)."""

    request_id: str
    by: str
    num_computed: int


class Copies(NamedTuple):
    """The copies to make before a step, each list in order. states: (from slot, to slot) in every state cache; -1 in
    place of the first slot sets the second to zero. pages: (group, from page, to page) in every layer of that page
    group."""

    states: tuple[tuple[int, int], ...] = ()
    pages: tuple[tuple[int, int, int], ...] = ()


NO_COPIES = Copies()


class SpanWork(NamedTuple):
    """Work on rows of an image that see each other, which go through the language model in pieces over several steps.
    planned: the sequence with all of these rows; its logits are computed with the last piece. pieces: the pieces that
    this step computes, in order. ends: whether the last piece of these rows is one of `pieces`."""

    planned: PlannedSequence
    pieces: tuple[SpanPiece, ...]
    ends: bool

    @property
    def request_id(self) -> str:
        """The id of the request that shows the image."""
        return self.planned.request.request_id


class EncodeTurn(NamedTuple):
    """The work on one image that a step may do. tile: the tile to encode; None for no work. seconds: the longest time
    that the step may spend on the encoder's pieces for this tile. pace: corrects the predicted times of these pieces.
    """

    tile: ImageTile | None = None
    seconds: float = 0.0
    pace: EncodePace = AS_PREDICTED


NO_TURN = EncodeTurn()


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step computes. sequences: the sequences of the step, decoding ones first, then prefill chunks.
    preemptions: the sequences that were preempted for this step.

    held: why the next request of the queue was not admitted; None where no request waits. state_copies, page_copies:
    the copies made in order before the sequences are computed (`Copies`). num_draft_tokens: the draft tokens of all
    sequences together. encode: the tile of an image that the step works on. encode_s: the seconds that the pieces of
    this work may take. encode_pace: corrects the predicted seconds of a piece. span: the pieces of a span (image rows
    that see each other) that the step computes after its sequences. The sequence with the span is not one of
    `sequences`.
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
    encode_pace: EncodePace = AS_PREDICTED
    span: SpanWork | None = None

    @property
    def computed(self) -> tuple[PlannedSequence, ...]:
        """All sequences of the step. If the step also computes pieces of a span of image rows, the sequence with this
        span comes last."""
        return self.sequences if self.span is None else (*self.sequences, self.span.planned)

    @property
    def unfinished(self) -> PlannedSequence | None:
        """The sequence whose span of image rows is not complete after this step; None where there is none."""
        return None if self.span is None or self.span.ends else self.span.planned

    @property
    def preempted(self) -> tuple[str, ...]:
        """The ids of the requests that were preempted for this step."""
        return tuple(preemption.request_id for preemption in self.preemptions)

    @property
    def num_tokens(self) -> int:
        """The number of rows of `sequences`. The image rows in `span` are not counted."""
        return sum(sequence.num_tokens for sequence in self.sequences)
