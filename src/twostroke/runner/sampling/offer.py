"""The tokens that may come next in a beam, with the scores by which beams are compared.

A score is the token's log probability with the request's changes: in a beam search, penalties, bias, bans and masks
change log probabilities, not logits. transformers' generate(num_beams=..., do_sample=False) does the same. After these
changes, the probabilities of a row need not have the sum 1.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.attention.token_weights import Weigh
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.changes import Changes
from twostroke.runner.sampling.choose import largest
from twostroke.runner.sampling.logprobs import log_total
from twostroke.types.result import Continuation, TokenLogprob


def unchanged(logprob: TokenLogprob) -> tuple[Continuation, ...]:
    """Returns the most likely tokens as the continuations of a beam, for a request without penalties, bias, bans or
    masks: its scores are the log probabilities."""
    return tuple(Continuation(token_id, each, each) for token_id, each in logprob.top)


def offer(weigh: Weigh, logits: F32Array, changes: Changes, count: int) -> tuple[Continuation, ...]:
    """Returns the `count` best tokens that are possible, ties by id; fewer where fewer are possible. logits: (V,), raw.
    """
    logprobs = logits.astype(np.float64) - log_total(float(logits.max()), int(weigh(logits, 1.0).sum()))
    scores = changes.changed(logprobs.astype(np.float32))
    best = largest(scores, min(count, len(scores))).tolist()
    found = (Continuation(token_id, float(scores[token_id]), float(logprobs[token_id])) for token_id in best)
    return tuple(each for each in found if np.isfinite(each.score))
