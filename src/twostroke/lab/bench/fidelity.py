"""How far an engine is from float32 on a text: three figures of its likeliest tokens.

The error of a position is the mean, weighted by float32's probabilities, of |log p(engine) - log p(float32)| over the
engine's TOP likeliest tokens. It is 0 where nothing is rounded; 0.1 means that probabilities are wrong by a tenth. The
KL divergence is in nats; all tokens but the engine's TOP likeliest are treated as one token. The third figure is the
share of positions at which both have the same likeliest token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import F32Array

TOP = 20
"""The number of likeliest tokens of a position that are compared: the most that the OpenAI API gives log probabilities
for."""
TINY = 1e-12
Heard = tuple[Sequence[int], Sequence[float]]
"""The ids of a position's likeliest tokens, the likeliest first, and their log probabilities, as an engine returned
them."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How far an engine is from float32. error: the mean difference of the likeliest tokens' log
    probabilities. kl: the mean Kullback-Leibler divergence in nats. p99: the value that 99% of the errors
    do not exceed. same: the share of positions at which the best token is the same. positions: the number of positions.
    """

    error: float
    p99: float
    kl: float
    same: float
    positions: int


def error_of(truth: F32Array, heard: Heard) -> float:
    """Returns the error of a position: the mean of |log p(engine) - log p(float32)| over the engine's likeliest tokens,
    weighted by float32's probabilities. truth: float32's log probabilities of all tokens, (V,). heard: the engine's
    likeliest tokens with their log probabilities."""
    exact, found = _pair(truth, heard)
    weights = np.exp(exact)
    return float(np.sum(weights * np.abs(exact - found)) / max(TINY, float(weights.sum())))


def kl_of(truth: F32Array, heard: Heard) -> float:
    """Returns KL(float32 || engine) of a position. All tokens that are not in `heard` count as a single one."""
    exact, found = _pair(truth, heard)
    rest, own_rest = (max(TINY, 1.0 - float(np.exp(each).sum())) for each in (exact, found))
    return float(np.sum(np.exp(exact) * (exact - found)) + rest * np.log(rest / own_rest))


def fidelity(positions: Iterable[tuple[F32Array, Heard]]) -> Fidelity:
    """Returns how far an engine is from float32, over all positions: means of error and KL, the 99th percentile of the
    error, and the share of equal best tokens. Each position has (float32's log probabilities, the engine's likeliest
    tokens). There must be at least one."""
    rows = [
        (error_of(truth, heard), kl_of(truth, heard), int(truth.argmax()) == heard[0][0]) for truth, heard in positions
    ]
    errors, divergences, same = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    return Fidelity(
        float(errors.mean()),
        float(np.quantile(errors, 0.99)),
        float(divergences.mean()),
        float(same.mean()),
        len(rows),
    )


def log_softmax(logits: F32Array) -> F32Array:
    """Returns the logarithms of the softmax of each row, (n, V)."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    found: F32Array = (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))).astype(np.float32)
    return found


def _pair(truth: F32Array, heard: Heard) -> tuple[np.ndarray, np.ndarray]:
    ids, logprobs = heard
    return truth[np.array(ids, np.int64)].astype(np.float64), np.array(logprobs, np.float64)
