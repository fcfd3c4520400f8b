"""Log probabilities of the model's own distribution: before penalties and temperature.

The sum in them is one of whole numbers (ops/token_weights.py), so they are the same on every machine. The rounding of
these numbers changes a log probability by less than 2^-26 where the vocabulary has 2^18 tokens.

Knows: one row of logits.
Must not know: how the token was chosen.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.token_weights import Weigh, ln_of_sum
from twostroke.types.result import TokenLogprob


def token_logprob(weigh: Weigh, logits: F32Array, token_id: int, num_top: int) -> TokenLogprob:
    """logits (V,) raw. The chosen token's natural log probability and the `num_top` (at most V) best, ties by id."""
    log_total = float(logits.max()) + ln_of_sum(int(weigh(logits, 1.0).sum()))
    top: tuple[tuple[int, float], ...] = ()
    if num_top:
        num_top = min(num_top, len(logits))
        threshold = np.partition(logits, len(logits) - num_top)[len(logits) - num_top]
        ids = np.flatnonzero(logits >= threshold)
        best = ids[np.argsort(-logits[ids], kind="stable")][:num_top]
        top = tuple((int(i), float(logits[i]) - log_total) for i in best)
    return TokenLogprob(token_id, float(logits[token_id]) - log_total, top)
