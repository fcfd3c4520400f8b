"""route_by_token: experts that a table names for each token id, weighed by scores (hash layers; Roller et al. 2021).

    out (T, 2 k) float32 = [weights | numbers], as route.py writes them. numbers: row token_ids[t] of table (V, k),
    given flat as (V * k,), in its order. weights: the scores of these experts, made of logits (T, E) by `scores` as in
    route.py, divided by (their sum + added), times `factor`. A number of the table is rounded to the nearest whole one
    and limited to [0, E). An expert that the row has already is replaced by the next expert that the row does not have
    yet; after the last expert comes the first. So every row has k different experts.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, below, between, grid, times
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.products.route import FLOPS_PER_EXPERT, RouteRule, Scores, scores_of
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Indices, Value, Vector


def reference(
    out: F32Array, logits: F32Array, token_ids: I32Array, table: F32Array, scores: int, added: float, factor: float
) -> None:
    """Looks up the experts of each row's token id in the table and weighs them by the scores of `logits`. Raises
    IndexError for a token id outside the table."""
    count, experts = out.shape[1] // 2, logits.shape[1]
    rows = table.reshape(-1, count)
    if token_ids.size and (int(token_ids.min()) < 0 or int(token_ids.max()) >= len(rows)):
        raise IndexError(f"token id outside [0, {len(rows)})")
    chosen = np.clip(np.rint(rows[token_ids]), 0, experts - 1).astype(np.int64)
    for row in chosen:
        for place in range(1, count):
            while row[place] in row[:place]:
                row[place] = (row[place] + 1) % experts
    weights = np.take_along_axis(scores_of(logits, scores), chosen, axis=1).astype(np.float64)
    weights = weights / (weights.sum(axis=1, keepdims=True) + added) * factor
    weights[~np.isfinite(logits).all(axis=1)] = np.nan
    out[:, :count], out[:, count:] = weights, chosen


@op
class RouteByToken(Op):
    """The k experts that a table names for each row's token id, and their weights."""

    SHAPES = {"out": "T 2C", "logits": "T E", "token_ids": "T", "table": "*"}
    CASES = (
        grid(
            3e-6,
            T=9,
            E=13,
            C=3,
            V=5,
            logits=times(4),
            token_ids=below("V"),
            table=Filled("V C", between(0, 12)),
            scores=tuple(Scores),
            added=1e-20,
            factor=1.5,
        ),
    )

    out: Value
    logits: Value
    token_ids: Indices
    table: Vector
    scores: int
    added: float
    factor: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a score for each expert."""
        experts = self.logits.width
        return OpCost(per_row=Work(FLOPS_PER_EXPERT * experts, activation_bytes=4 * (experts + self.out.width)))


def route_by_token(logits: Value, token_ids: Indices, table: Vector, rule: RouteRule) -> Value:
    """Records the call and returns [weights | numbers] of the experts of each row. table: for each token id, the
    numbers of its experts, rule.chosen of them. From the rule, the op takes `scores`, `added` and `factor`.
    """
    if table.length % rule.chosen or not rule.normalised or rule.chosen > logits.width:
        raise ValueError(f"a table of {table.length} numbers and {rule} do not name experts")
    out = logits.fresh(2 * rule.chosen)
    parts = (int(rule.scores), rule.added, rule.factor)
    logits.trace.record(RouteByToken(out, logits, token_ids, table, *parts))
    return out
