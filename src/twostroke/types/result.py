"""The result: what one engine step produced. It never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twostroke.types.encode import PieceTime
from twostroke.types.images import NOTHING_ENCODED, EncodedTiles
from twostroke.types.recorded.exchange_spent import ExchangeSpent


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log probability (natural, before temperature) of the chosen token and of the most likely ones, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Continuation(NamedTuple):
    """A token that may come next in a beam. score: its log probability after the request's changes of the logits
    (penalties, bias, masks). logprob: its log probability without these changes."""

    token_id: int
    score: float
    logprob: float


class SampledToken(NamedTuple):
    """One new token of one request. The class is a tuple because there are thousands of tokens a second.

    offered: for a beam, the tokens that may come next, best score first. memory: the state that samplers such as
    mirostat pass on to the request's next token; empty where no sampler has a state.
    """

    token_id: int
    logprob: TokenLogprob | None = None
    offered: tuple[Continuation, ...] = ()
    memory: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step produced, and how long its parts took. sampled: request id -> its new tokens, for each planned
    sequence with `samples`: the accepted tokens of its draft, and the token after them.

    failed: request id -> reason, for requests whose own work failed; they end, the others go on.

    undone: ids of requests for which nothing was computed, while their states may have changed. They begin again from
    their last snapshots.

    prompt_logprobs: request id -> log probabilities of the prompt tokens after its planned `scores`, in order.

    pooled: request id -> the sum of its pooled rows so far, float64 numbers as bytes.

    cold: True for the first step, and where background work still prepared memory during the step; its time then does
    not predict later steps.

    exchange: for a model in several processes, the leader's exchange with the others; its seconds are a part of
    model_s. delayed_s: seconds since the last step in which the step's thread was ready to run while the processor ran
    another program. early_s: for a step begun early, the part of model_s that had passed on the device when the
    executor got the plan.

    encodes: the work of the encoder of images; its seconds are a part of model_s. span_times: the computed pieces of
    spans (image rows that see each other); their seconds are a part of model_s.
    """

    sampled: Mapping[str, tuple[SampledToken, ...]]
    failed: Mapping[str, str] = field(default_factory=dict)
    model_s: float = 0.0
    sampling_s: float = 0.0
    prompt_logprobs: Mapping[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    cold: bool = False
    delayed_s: float = 0.0
    pooled: Mapping[str, bytes] = field(default_factory=dict)
    undone: frozenset[str] = frozenset()
    exchange: ExchangeSpent | None = None
    early_s: float = 0.0
    encodes: EncodedTiles = NOTHING_ENCODED
    span_times: tuple[PieceTime, ...] = ()

    @property
    def span_s(self) -> float:
        """The part of model_s that pieces of spans of image rows took."""
        return sum(each.seconds for each in self.span_times)

    @property
    def encode_s(self) -> float:
        """The part of model_s that the encoder of images took."""
        return self.encodes.seconds

    @property
    def pieces_s(self) -> float:
        """The part of model_s in which the step computed pieces of images, and not its sequences."""
        return self.encode_s + self.span_s

    @property
    def faulty(self) -> bool:
        """Whether some request's work failed or was not done: then the step's time does not predict later steps."""
        return bool(self.failed or self.undone)
