"""Log probabilities of the model's own distribution: before penalties and temperature.

Knows: one row of logits.
Must not know: how the token was chosen.
"""

from __future__ import annotations

import math

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.types.result import TokenLogprob


def token_logprob(logits: F32Array, token_id: int, num_top: int) -> TokenLogprob:
    """logits (V,) raw. The chosen token's natural log probability and the `num_top` best, ties by id."""
    wide = logits.astype(np.float64)
    peak = float(wide.max())
    log_total = peak + math.log(float(np.exp(wide - peak).sum()))
    top: tuple[tuple[int, float], ...] = ()
    if num_top:
        threshold = np.partition(logits, len(logits) - num_top)[len(logits) - num_top]
        ids = np.flatnonzero(logits >= threshold)
        best = ids[np.argsort(-logits[ids], kind="stable")][:num_top]
        top = tuple((int(i), float(wide[i]) - log_total) for i in best)
    return TokenLogprob(token_id, float(wide[token_id]) - log_total, top)
