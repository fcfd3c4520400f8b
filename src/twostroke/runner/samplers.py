"""Makes tokens from a step's inputs: runs the forward pass, then samples a token for each row that gives one.

`HostSampler` copies logits to the host. A device that samples has a class of its own, `DeviceSampler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from twostroke.ops.attention.token_weights import Weigh, weigh
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.sampling.logprobs import token_logprob
from twostroke.runner.sampling.verify import sample_rows
from twostroke.types.grammar import TOO_HEAVY, GrammarFault
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, TokenLogprob
from twostroke.types.sampling.forbidden_tokens import NO_TOKEN_LEFT, NoTokenLeft

Tokens = tuple[SampledToken, ...]


class Sampled(NamedTuple):
    """The result of sampling a step. tokens: the new tokens by request id. failed: the reason by request id, for
    requests that got no token."""

    tokens: dict[str, Tokens]
    failed: dict[str, str]


class StepSampler(Protocol):
    """Runs both halves of a step, the forward pass and the sampling. One step at a time."""

    weigh: Weigh

    def forward(self, plan: Plan, sizes: StepSizes) -> Any:
        """Runs the model on the step's inputs. The result is passed to `choose`."""

    def choose(self, plan: Plan, found: Any) -> Sampled:
        """Returns the sampled tokens. found: the result of `forward` for this plan. A fault in sampling one request
        ends only that request."""

    def score(self, rows: I32Array, token_ids: Sequence[int], num_top: int, sizes: StepSizes) -> list[TokenLogprob]:
        """Returns log probabilities of known tokens, one for each of these rows of the last step, with the num_top most
        likely tokens. There may be at most max_rows rows (see Forward). It must be called after `choose`, because it
        overwrites the logits of the step."""


class HostSampler:
    """Satisfies StepSampler, row by row. weigh: makes the whole-number weights by which tokens are drawn."""

    def __init__(self, forward: Forward, weigh: Weigh = weigh) -> None:
        self._forward, self.weigh = forward, weigh

    def forward(self, plan: Plan, sizes: StepSizes) -> F32Array:
        del plan
        return self._forward(sizes)

    def choose(self, plan: Plan, found: F32Array) -> Sampled:
        sampled, end = Sampled({}, {}), 0
        for sequence in plan.sequences:
            begin, end = end, end + sequence.sampled_rows
            if begin < end:
                rows = found[begin:end]
                note(sampled, sequence.request.request_id, partial(sample_rows, self.weigh, rows, sequence))
        return sampled

    def score(self, rows: I32Array, token_ids: Sequence[int], num_top: int, sizes: StepSizes) -> list[TokenLogprob]:
        return scores_here(self.weigh, self._forward.logits(rows, sizes), token_ids, num_top)


def scores_here(weigh: Weigh, logits: F32Array, token_ids: Sequence[int], num_top: int) -> list[TokenLogprob]:
    """Returns, computed on the host, the log probability of one token for each row of logits (R, V), together with
    those of the row's `num_top` likeliest tokens."""
    return [token_logprob(weigh, row, token_id, num_top) for row, token_id in zip(logits, token_ids, strict=True)]


def note(sampled: Sampled, request_id: str, make: Callable[[], Tokens]) -> None:
    """Calls `make`, which samples a request's tokens, and stores them in `sampled`, or the reason why it failed."""
    try:
        sampled.tokens[request_id] = make()
    except GrammarFault as error:
        sampled.failed[request_id] = f"{TOO_HEAVY} ({error})"
    except NoTokenLeft:
        sampled.failed[request_id] = NO_TOKEN_LEFT
    except (ValueError, IndexError) as error:
        sampled.failed[request_id] = f"sampling failed: {error}"
