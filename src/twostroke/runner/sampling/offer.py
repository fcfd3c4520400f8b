"""What may come next in a beam, with the scores that beams are compared by.

A score is the token's log probability, changed as the request says: penalties, bias, bans and masks work on log
probabilities here, not on logits. transformers' generate(num_beams=..., do_sample=False) does the same. The scores that
are left are not made to sum up to 1 again.
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
    """The most likely tokens, where the request changes nothing."""
    return tuple(Continuation(token_id, each, each) for token_id, each in logprob.top)


def offer(weigh: Weigh, logits: F32Array, changes: Changes, count: int) -> tuple[Continuation, ...]:
    """logits (V,) raw. The `count` best tokens that are possible, ties by id; fewer where fewer are possible."""
    logprobs = logits.astype(np.float64) - log_total(float(logits.max()), int(weigh(logits, 1.0).sum()))
    scores = changes.changed(logprobs.astype(np.float32))
    best = largest(scores, min(count, len(scores))).tolist()
    found = (Continuation(token_id, float(scores[token_id]), float(logprobs[token_id])) for token_id in best)
    return tuple(each for each in found if np.isfinite(each.score))
