"""A request of the engine: one sequence of tokens that a client waits for.

A user's request with n > 1 becomes n engine requests with one group_id; they share the pages of the prompt.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from twostroke.types.grammar import TokenMask
from twostroke.types.images import ImageSpan
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.pooling import PooledRows
from twostroke.types.sampling.many_answers import num_offered
from twostroke.types.sampling.sampling_params import SamplingParams


class FinishReason(enum.StrEnum):
    """Why a request ended. STOP: an end token or a stop string. LENGTH: max_tokens or the context."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Request:
    """The scheduler's input; never changed afterwards, except for the mask, which follows the output.

    seed: already drawn (the scheduler draws no random numbers). max_tokens: already resolved against the context.
    end_token_ids: tokens that end the output (empty with ignore_eos). cache_salt: requests with different salts never
    share prefix pages. arrival_s: the time of arrival on the caller's clock. priority: 0 and below is interactive,
    above 0 is batch work. objectives: its own objectives in place of the engine's. speculate: the way in which its next
    tokens are guessed, in place of the engine's way. mask: the object that knows which tokens the grammar allows next.
    It gets each output token when it is committed; None where any token may come. resumed_token_ids: output that was
    made elsewhere before: it counts as output and is not sent again, and `mask` has received it. resumed_memory: what
    the request's samplers remember after these tokens. adapter: the number of the adapter that its rows are computed
    with; -1 for none. Requests with different adapters have different salts. pooling: the rows that become one vector;
    such a request has no output. shown_token_ids: special tokens that are part of its text. images: positions of the
    prompt that hold image rows, in order; the token ids there are placeholders. disk_s: the additional seconds that its
    pages stay on a disk, compared with other pages; below zero they are not written to a disk.
    """

    request_id: str
    group_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    max_tokens: int
    end_token_ids: frozenset[int]
    arrival_s: float
    cache_salt: str = ""
    priority: int = 0
    objectives: LatencyObjectives | None = None
    speculate: str | None = None
    mask: TokenMask | None = field(default=None, compare=False, repr=False)
    resumed_token_ids: tuple[int, ...] = ()
    resumed_memory: tuple[float, ...] = ()
    adapter: int = -1
    pooling: PooledRows | None = None
    shown_token_ids: frozenset[int] = frozenset()
    images: tuple[ImageSpan, ...] = ()
    disk_s: float = 0.0

    @property
    def wants_rows(self) -> bool:
        """Whether the answer has log probabilities of prompt tokens, or a vector made from rows of the prompt."""
        return self.pooling is not None or self.params.prompt_logprobs is not None

    @property
    def wanted_rows(self) -> range:
        """The positions of the prompt for which the head must compute a row, even where their K and V are cached."""
        length = len(self.prompt_token_ids)
        if self.pooling is not None:
            return self.pooling.positions(length)
        return range(length - 1 if self.params.prompt_logprobs is not None else 0)

    @property
    def steered(self) -> bool:
        """True for a beam: after each token it waits until the beam search decides how it goes on."""
        return self.params.use_beam_search

    @property
    def num_offered(self) -> int:
        """The number of tokens that a search looks at for a beam; 0 without a search."""
        return num_offered(self.params, len(self.end_token_ids)) if self.steered else 0

    @property
    def num_top(self) -> int | None:
        """The number of most likely tokens whose log probabilities come with each token. None: no log probabilities,
        not even the token's own."""
        params = self.params
        return max(params.logprobs or 0, self.num_offered) if params.use_beam_search else params.logprobs

    def ends_with(self, token_id: int, num_output: int) -> bool:
        """Returns whether this token ends the output after `num_output` earlier output tokens."""
        ends = token_id in self.end_token_ids or token_id in self.params.stop_token_ids
        return ends and num_output >= self.params.min_tokens
