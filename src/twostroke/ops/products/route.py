"""route: which experts a row uses, and with which weights (Shazeer et al. 2017; DeepSeek-AI 2024).

    out (T, 2 k) float32 = [weights | numbers] of logits (T, E) float32, E <= 1,024.

    score    of an expert: softmax over all E logits, or sigmoid or sqrt(softplus) of the expert's own logit;
             `scores` chooses, a number of `Scores`
    choice   the logit where there is no bias (E,), else score + bias; with SIGMOID_OF_LOGIT logit + bias (Kolibri)
    groups   the experts lie in `groups` groups of neighbours, all of one size. The value of a group is the sum of its
             `best` largest choices (1, or 2 where there is a bias). Only experts in the `kept` groups of the largest
             values may be chosen; of equal groups the earlier one is kept
    weight   the expert's score. Where `normalised` is not 0, it is divided by max(sum of the chosen scores, least) +
             added, two constants. It is multiplied by `factor`, and by the expert's number in shares (E,) where these
             are given (Gemma 4)

numbers: the numbers of the k experts with the largest choices, largest first; of equal choices the lower number comes
first. Numbers are stored as float32, which holds whole numbers below 2^24 exactly. A row with a logit that is not
finite has k different numbers and weights that are NaN. One row's result depends on that row alone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.cost.work import Work
from twostroke.ops.cases import around, grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import CallArrays, Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector

FLOPS_PER_EXPERT = 7
"""The FLOPs for each logit: a comparison, an exponential (counted as 5) and an addition."""


class Scores(enum.IntEnum):
    """The way in which scores are made from logits; each value is the way's number in the native ABI."""

    SOFTMAX = 0
    SIGMOID = 1
    SQRT_SOFTPLUS = 2
    SIGMOID_OF_LOGIT = 3


def reference(call: CallArrays) -> None:
    out, logits, normalised, bias, scores, groups, kept, best, least, added, factor, shares = call
    count = out.shape[1] // 2
    found = scores_of(logits, scores)
    chosen_by = logits if bias is None or scores == Scores.SIGMOID_OF_LOGIT else found
    choices = chosen_by if bias is None else chosen_by + bias
    choices = np.where(_open(choices, groups, kept, best), choices, -np.inf)
    chosen = np.argsort(-choices, axis=1, kind="stable")[:, :count]
    weights = np.take_along_axis(found, chosen, axis=1).astype(np.float64)
    if normalised:
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), least) + added
    weights *= factor
    weights[~np.isfinite(logits).all(axis=1)] = np.nan
    if shares is not None:
        weights *= shares[chosen]
    out[:, :count], out[:, count:] = weights, chosen


def scores_of(logits: F32Array, scores: int) -> F32Array:
    """Returns the score of each expert, (T, E). logits: (T, E). scores: the number of a `Scores`."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        if scores in (Scores.SIGMOID, Scores.SIGMOID_OF_LOGIT):
            found: F32Array = (1.0 / (1.0 + np.exp(-wide))).astype(np.float32)
            return found
        if scores == Scores.SQRT_SOFTPLUS:
            root: F32Array = np.sqrt(np.logaddexp(0.0, wide)).astype(np.float32)
            return root
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        shares: F32Array = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
        return shares


def _open(choices: F32Array, groups: int, kept: int, best: int) -> NDArray[np.bool_]:
    """Returns (T, E): whether each expert may be chosen. The value of a group is the sum of its `best` largest choices;
    the experts of the `kept` groups with the largest values may be chosen."""
    rows, experts = choices.shape
    if groups == kept:
        return np.ones((rows, experts), np.bool_)
    values = np.sort(choices.reshape(rows, groups, -1), axis=2)[:, :, -best:].sum(axis=2)
    order = np.argsort(-values, axis=1, kind="stable")[:, :kept]
    found = np.zeros((rows, groups), np.bool_)
    np.put_along_axis(found, order, True, axis=1)
    return np.repeat(found, experts // groups, axis=1)


@op
class Route(Op):
    """The numbers of the k experts that each row uses, and their weights."""

    SHAPES = {"out": "T 2C", "logits": "T E", "bias": "E", "shares": "E"}
    CASES = (
        *(
            grid(3e-6, T=33, E=experts, C=chosen, logits=times(3), normalised=(0, 1), bias=None, shares=None)
            for experts, chosen in ((1, 1), (8, 2), (15, 3), (16, 16), (128, 8), (1024, 9))
        ),
        *(
            grid(3e-6, T=33, E=(16, 40), C=3, logits=times(2), normalised=(0, 1), bias=bias, scores=scores,
                 groups=groups, kept=kept, best=best, least=least, added=added, factor=factor, shares=(None, around(1)))
            for bias, scores, groups, kept, best, least, added, factor in (
                (times(0.2), Scores.SIGMOID, 1, 1, 1, 0.0, 1e-20, 1.0),
                (times(0.2), Scores.SIGMOID, 4, 2, 2, 0.0, 1e-20, 2.5),
                (times(0.2), Scores.SOFTMAX, 1, 1, 1, 0.4, 0.0, 1.0),
                (None, Scores.SOFTMAX, 8, 3, 1, 0.0, 0.0, 16.0),
                (times(0.2), Scores.SQRT_SOFTPLUS, 1, 1, 1, 0.0, 0.0, 1.5),
                (times(0.2), Scores.SIGMOID_OF_LOGIT, 4, 2, 2, 0.0, 0.0, 1.0),
            )
        ),
    )  # fmt: skip

    out: Value
    logits: Value
    normalised: int
    bias: Vector | None = None
    scores: int = Scores.SOFTMAX
    groups: int = 1
    kept: int = 1
    best: int = 1
    least: float = 0.0
    added: float = 0.0
    factor: float = 1.0
    shares: Vector | None = None

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts FLOPS_PER_EXPERT for each expert's logit, and the bytes of the logits and of the result."""
        experts = self.logits.width
        return OpCost(per_row=Work(FLOPS_PER_EXPERT * experts, activation_bytes=4 * (experts + self.out.width)))


@dataclass(frozen=True, slots=True)
class RouteRule:
    """How a model family chooses the experts of a row, and weighs them. chosen: how many a row uses. normalised:
    whether their weights are divided by max(sum, least) + added. factor: all weights are multiplied by it. groups,
    kept, best: experts are chosen in the `kept` of `groups` groups whose `best` largest choices have the largest
    sums."""

    chosen: int
    normalised: bool = False
    scores: Scores = Scores.SOFTMAX
    groups: int = 1
    kept: int = 1
    best: int = 1
    least: float = 0.0
    added: float = 0.0
    factor: float = 1.0


def route(logits: Value, rule: RouteRule, bias: Vector | None = None, shares: Vector | None = None) -> Value:
    """Records the call and returns [weights | numbers] of each row's experts. Raises ValueError for a rule that these
    experts cannot satisfy."""
    experts = logits.width
    if experts % rule.groups or not 1 <= rule.kept <= rule.groups:
        raise ValueError(f"{rule.kept} of {rule.groups} groups of {experts} experts cannot be kept")
    inside = experts // rule.groups
    if not 1 <= rule.chosen <= rule.kept * inside:
        raise ValueError(f"{rule.chosen} of {rule.kept * inside} experts cannot be chosen")
    if not 1 <= rule.best <= min(2, inside) or (rule.best == 2 and bias is None):
        raise ValueError(f"the value of a group of {inside} experts cannot be the sum of {rule.best} choices")
    out = logits.fresh(2 * rule.chosen)
    logits.trace.record(
        Route(
            out,
            logits,
            int(rule.normalised),
            bias,
            int(rule.scores),
            rule.groups,
            rule.kept,
            rule.best,
            rule.least,
            rule.added,
            rule.factor,
            shares,
        )
    )
    return out
