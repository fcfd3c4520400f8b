"""Measures the cost of quantizing: two models run on a text that calibration has not seen, both stage by stage.

For the whole model: KL(original || quantized) in nats, and both perplexities, of the quantized folder as it is served.
For each stage (half a layer, mostly): the same KL where this stage alone is the quantized one, on a few sequences of
the text. For this, the text goes through the original stages before that stage, then the quantized stage, then the
original stages after it. Memory holds one stage of both models, and the hidden states between stages for every such
stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from twostroke.ops.operands import F32Array, I32Array
from twostroke.quantize.driver.stages import StagedModel
from twostroke.weights.loaded import ModelWeights

STAGE_RUNS, STAGE_TOKENS = 2, 128
"""The KL divergence of each single stage is measured on this many sequences of the text, and this many tokens of
each."""


@dataclass(slots=True)
class Divergence:
    """How far another model is from the original, as sums over positions. kl: the KL divergences. surprise: the
    negative log probabilities of the next tokens, of the original and of the other model. same: the number of positions
    with the same likeliest token. predicted: the number of positions with a next token."""

    kl: float = 0.0
    surprise: tuple[float, float] = (0.0, 0.0)
    same: int = 0
    positions: int = 0
    predicted: int = 0

    def add(self, exact: F32Array, found: F32Array, next_ids: I32Array) -> None:
        """Adds some positions to all sums and counts. exact, found: logits (n, vocabulary) of both models. next_ids:
        the tokens that followed, (n,) or one fewer at the end of a sequence."""
        truth, own = _log_softmax(exact), _log_softmax(found)
        self.kl += float(np.sum(np.exp(truth) * (truth - own)))
        self.same += int(np.count_nonzero(truth.argmax(axis=1) == own.argmax(axis=1)))
        self.positions += len(truth)
        at = np.arange(len(next_ids)), next_ids
        self.surprise = (self.surprise[0] - float(truth[at].sum()), self.surprise[1] - float(own[at].sum()))
        self.predicted += len(next_ids)

    @property
    def mean_kl(self) -> float:
        """The mean KL divergence of a position, in nats."""
        return self.kl / max(1, self.positions)

    @property
    def perplexities(self) -> tuple[float, float]:
        """The perplexities of the original and of the other model."""
        before, after = (float(np.exp(each / max(1, self.predicted))) for each in self.surprise)
        return before, after


@dataclass(frozen=True, slots=True)
class StageCost:
    """The cost of quantizing one stage. name: its layer and the roles of its matrices. kl: the KL divergence where this
    stage alone is quantized. drift: the relative difference of the stage's output where all stages so far are
    quantized; 0 for the last stage."""

    name: str
    kl: float
    drift: float


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The comparison of a quantized model with the original. whole: the divergence of the whole model. stages: the
    costs of the stages with quantized matrices."""

    whole: Divergence
    stages: list[StageCost] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Alone:
    """The original model with one stage replaced by its quantized version. A few sequences of the text run through it,
    one stage at a time. name: the replaced stage. drift: see StageCost. values: the sequences' hidden states after the
    stages so far. sums: the divergence from the original's logits."""

    name: str
    drift: float
    values: list[F32Array]
    sums: Divergence = field(default_factory=Divergence)


def compare(
    exact: StagedModel,
    other: StagedModel,
    runs: Sequence[I32Array],
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    each: bool = True,
) -> ModelComparison:
    """Compares a quantized model (`other`) with the original (`exact`). runs: the text, as sequences of token ids (T,).
    each: whether single stages are compared, too. Raises ModelError.

    Where the two programs have different numbers of stages, only the whole is compared.
    """
    count, others = len(exact.stages), len(other.stages)
    each = each and count == others
    short = [ids[:STAGE_TOKENS] for ids in runs[:STAGE_RUNS]]
    truth: list[F32Array] = []
    found: list[F32Array] = []
    alone: list[_Alone] = []
    short_truth: list[F32Array] = []
    for index in range(max(count, others) - 1):
        progress(index, max(count, others))
        weights = exact.weights(index) if index < count - 1 else None
        if weights is not None:
            truth = exact.run(index, weights, runs, truth, None)
        if index < others - 1:
            own = other.weights(index)
            found = other.run(index, own, runs, found, None)
            if each and weights is not None:
                before = short_truth
                short_truth = exact.run(index, weights, short, before, None)
                alone = [
                    _Alone(a.name, a.drift, exact.run(index, weights, short, a.values, None), a.sums) for a in alone
                ]
                if _differ(other, index):
                    made = other.run(index, own, short, before, None)
                    alone.append(_Alone(_name(exact, index), _drift(truth, found), made))
    last, own_last = exact.weights(count - 1), other.weights(others - 1)
    whole = Divergence()
    for at, ids in enumerate(runs):
        right = _Head(exact, last, truth[at] if truth else None)
        _add(whole, ids, right, _Head(other, own_last, found[at] if found else None))
    for a in alone:
        for at, ids in enumerate(short):
            _add(a.sums, ids, _Head(exact, last, short_truth[at]), _Head(exact, last, a.values[at]))
    if each and short_truth and _differ(other, count - 1):
        alone.append(_Alone(_name(exact, count - 1), 0.0, short_truth))
        for at, ids in enumerate(short):
            right, rounded = _Head(exact, last, short_truth[at]), _Head(other, own_last, short_truth[at])
            _add(alone[-1].sums, ids, right, rounded)
    return ModelComparison(whole, [StageCost(a.name, a.sums.mean_kl, a.drift) for a in alone])


class _Head(NamedTuple):
    """A model and the weights of its last stage, which makes the logits. rows: the hidden states before this stage;
    None for a model with one stage."""

    model: StagedModel
    weights: ModelWeights
    rows: F32Array | None

    def logits(self, ids: I32Array) -> Iterator[F32Array]:
        return self.model.logits(self.weights, ids, self.rows)


def _add(sums: Divergence, ids: I32Array, exact: _Head, other: _Head) -> None:
    first = 0
    for exact_rows, other_rows in zip(exact.logits(ids), other.logits(ids), strict=True):
        sums.add(exact_rows, other_rows, ids[first + 1 : first + 1 + len(exact_rows)])
        first += len(exact_rows)


def _log_softmax(logits: F32Array) -> F32Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: F32Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def _drift(truth: Sequence[F32Array], found: Sequence[F32Array]) -> float:
    change = sum(float(np.sum((a - b) ** 2.0)) for a, b in zip(truth, found, strict=True))
    return float(np.sqrt(change / max(1e-30, sum(float(np.sum(a**2.0)) for a in truth))))


def _differ(other: StagedModel, index: int) -> bool:
    """Returns whether stage `index` of the quantized model has a quantized matrix, so that it may differ from the
    original."""
    return any(other.formats(weight).keeps_codes for weight in other.stages[index].program.weights)


def _name(staged: StagedModel, index: int) -> str:
    """Returns a name for the stage in the report: the first part of its first weight's key (a layer), and the roles of
    all its weights."""
    weights = staged.stages[index].program.weights
    return f"{weights[0].key.rpartition(':')[0]} {', '.join(weight.role for weight in weights)}" if weights else ""
