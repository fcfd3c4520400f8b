"""Log probabilities of the model's own distribution, before penalties and temperature.

They are made from a sum of whole numbers (ops/attention/token_weights.py), so they are the same on every machine. The
rounding of these whole numbers changes a log probability by less than 2^-26 where the vocabulary has 2^18 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from twostroke.ops.attention.token_weights import Weigh, ln_of_sum
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.choose import largest
from twostroke.types.result import TokenLogprob


def token_logprob(weigh: Weigh, logits: F32Array, token_id: int, num_top: int) -> TokenLogprob:
    """Returns the chosen token's natural log probability, and those of the `num_top` (at most V) best tokens, ties by
    id. logits: (V,), raw."""
    top: list[tuple[int, float]] = []
    if num_top:
        num_top = min(num_top, len(logits))
        top = [(int(i), float(logits[i])) for i in largest(logits, num_top)]
    total = int(weigh(logits, 1.0).sum())
    return logprob_of(float(logits.max()), total, token_id, float(logits[token_id]), top)


def logprob_of(best: float, total: int, token_id: int, logit: float, top: Iterable[tuple[int, float]]) -> TokenLogprob:
    """Makes a token's log probability. best: the largest logit. total: the sum of the weights at temperature 1. logit:
    the token's logit. top: tokens with their logits, best first."""
    less = log_total(best, total)
    return TokenLogprob(token_id, logit - less, tuple((token, each - less) for token, each in top))


def log_total(best: float, total: int) -> float:
    """Returns the number that is subtracted from each logit to get its log probability."""
    return best + ln_of_sum(total)
