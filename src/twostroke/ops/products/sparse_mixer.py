"""sparse_mixer: one expert after the other, weighed against those that come near it (Liu et al. 2023; Phi-3.5-MoE).

    out (T, 2 k) float32 = [weights | numbers] of logits (T, E) float32, E <= 1,024, as route.py writes them.

Step i takes the expert with the largest logit m of those that are left; of equal logits the lower number. Its weight is
1 / s. s is the sum of exp(l - m) over the logits l that are left and have (m - l) / max(|l|, m) of at most 2 jitter.
Then the expert is left out. A row with a logit that is not finite has k different numbers and weights that are NaN. One
row's result depends on that row alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value

FLOPS_PER_EXPERT = 9
"""The FLOPs for each logit and choice: a comparison, a difference, a quotient, an exponential (counted as 5) and an
addition."""


def reference(out: F32Array, logits: F32Array, jitter: float) -> None:
    count = out.shape[1] // 2
    for row, line in enumerate(logits):
        left = np.ones(len(line), np.bool_)
        for place in range(count):
            best = int(np.argmax(np.where(left & ~np.isnan(line), line, -np.inf)))
            best = best if left[best] else int(np.argmax(left))
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                apart = (line[best] - line) / np.maximum(np.abs(line), line[best])
                near = left & ~(apart > np.float32(2 * jitter))
                total = np.exp((line[near] - line[best]).astype(np.float64)).sum()
            out[row, place], out[row, count + place] = 1.0 / total, best
            left[best] = False
    out[~np.isfinite(logits).all(axis=1), :count] = np.nan


@op
class SparseMixer(Op):
    """The k experts of each row, chosen one after the other."""

    SHAPES = {"out": "T 2C", "logits": "T E"}
    CASES = tuple(
        grid(3e-6, T=33, E=experts, C=chosen, jitter=(0.0, 0.01, 0.4))
        for experts, chosen in ((1, 1), (6, 2), (16, 2), (41, 5))
    )

    out: Value
    logits: Value
    jitter: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts one pass over the logits for each expert that a row chooses."""
        experts, chosen = self.logits.width, self.out.width // 2
        return OpCost(
            per_row=Work(FLOPS_PER_EXPERT * experts * chosen, activation_bytes=4 * (experts + self.out.width))
        )


def sparse_mixer(logits: Value, chosen: int, jitter: float) -> Value:
    """Records the call and returns [weights | numbers] of the `chosen` experts of each row."""
    if not 1 <= chosen <= logits.width:
        raise ValueError(f"{chosen} of {logits.width} experts cannot be chosen")
    out = logits.fresh(2 * chosen)
    logits.trace.record(SparseMixer(out, logits, jitter))
    return out
