"""What a caller of the engine gets: pieces while an answer streams, and the whole answer at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from twostroke.types.grammar import TokenMask
from twostroke.types.images import ImageSpan
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.pooling import PooledRows
from twostroke.types.recorded.parts import TimeParts
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob
from twostroke.types.sampling.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user request before it becomes n engine requests. token_ids: never empty; the engine's caller has checked the
    ids.

    speculate: the way in which the request's next tokens are guessed, by the names of --speculate; None means the way
    that the engine was started with.

    masks: for each completion, a token mask of params.grammar that has seen no token yet; the session makes the masks
    where they are missing. A prompt that has masks can be run only once. shown_token_ids: special tokens that are part
    of this answer's text nevertheless. adapter: the name of the adapter to compute the request with; None for the model
    without an adapter. pooling: how the prompt becomes one vector; then no answer is made, and params are not used.
    images, disk_s: see `Request`.
    """

    token_ids: tuple[int, ...]
    params: SamplingParams
    request_id: str | None = None
    cache_salt: str = ""
    priority: int = 0
    objectives: LatencyObjectives | None = None
    masks: tuple[TokenMask, ...] = field(default=(), compare=False, repr=False)
    shown_token_ids: frozenset[int] = frozenset()
    speculate: str | None = None
    adapter: str | None = None
    pooling: PooledRows | None = None
    images: tuple[ImageSpan, ...] = ()
    disk_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Times in seconds on the engine's clock; None where the request did not get so far. parts: how the time is
    divided.

    guesses_won_s: the time that accepted guesses saved, as the predicted seconds of the saved steps. guesses_lost_s:
    the predicted seconds that the verification of guesses took.
    """

    arrival_s: float
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    parts: TimeParts | None = None
    guesses_won_s: float = 0.0
    guesses_lost_s: float = 0.0

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival until the first position was planned."""
        return None if self.first_scheduled_s is None else self.first_scheduled_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, queueing included."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> float | None:
        """Seconds from arrival to the last token."""
        return None if self.finished_s is None else self.finished_s - self.arrival_s

    def mean_itl_s(self, num_output_tokens: int) -> float | None:
        """(E2E - TTFT) / (tokens - 1), which is TPOT; None with fewer than two tokens."""
        if self.first_token_s is None or self.finished_s is None or num_output_tokens < 2:
            return None
        return (self.finished_s - self.first_token_s) / (num_output_tokens - 1)


class Delta(msgspec.Struct, frozen=True, gc=False):
    """One piece of one completion of a streamed request. All pieces joined give the completion. One is made for each
    token, so it is a Struct, which is made in a tenth of the time of a frozen dataclass. `msgspec.structs.replace`
    makes a changed copy.

    index: the number of the completion, 0 to n - 1. text: the piece of text; it may be empty while a stop string or
    half a character is held back. finish_reason: set on the last piece of this index, with stop_reason (the stop string
    or end token id). num_output_tokens: the tokens generated so far, with those that are held back or never delivered
    (end token, stop string). prompt_logprobs: log probabilities of the prompt's next tokens, from its second on; they
    come before any text, with index 0. end_logprob: on the last piece, the log probability of the end token, which is
    generated and never delivered. score: the score of an answer that was chosen among several
    (`SamplingParams.best_of`). num_other_tokens: on the last piece of index 0, the tokens generated for answers that
    were not chosen. retry_after_s: on the last piece of a request that was refused because it would be late, the
    seconds until it may be sent again; `error` has the reason. rows_sum: on the last piece of a pooled prompt, the sum
    of its rows: float64 numbers as bytes.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    timings: Timings | None = None
    num_output_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    end_logprob: TokenLogprob | None = None
    retry_after_s: float | None = None
    score: float | None = None
    num_other_tokens: int = 0
    rows_sum: bytes = b""

    def followed_by(self, later: Delta) -> Delta | None:
        """Returns this piece and `later` as one piece; None where they must stay apart. They stay apart if they belong
        to different completions, or if one has log probabilities of the prompt. They also do if the later piece ends
        the answer with a fault, since the error that is raised for it would lose the text of this piece."""
        if later.index != self.index or self.finish_reason or self.prompt_logprobs or later.prompt_logprobs:
            return None
        if later.finish_reason in (FinishReason.ERROR, FinishReason.ABORT):
            return None
        return replace(
            later,
            text=self.text + later.text,
            token_ids=self.token_ids + later.token_ids,
            logprobs=self.logprobs + later.logprobs,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished answer. num_output_tokens: the tokens generated, with the end token and the tokens that a stop
    string took away. score: for an answer chosen among several, the mean log probability of its tokens, or its score in
    the beam search."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    error: str | None = None
    timings: Timings | None = None
    num_preemptions: int = 0
    num_output_tokens: int = 0
    score: float | None = None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """All n answers to one prompt. prompt_logprobs: log probabilities of the prompt's tokens from the second on, where
    the request asked for them. num_other_tokens: the tokens generated for answers that were not chosen. rows_sum: for a
    pooled prompt, the sum of its hidden rows, as float64 bytes."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    num_cached_tokens: int = 0
    prompt: str | None = field(default=None)
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    num_other_tokens: int = 0
    rows_sum: bytes = b""

    @property
    def text(self) -> str:
        """The text of the first completion."""
        return self.completions[0].text
