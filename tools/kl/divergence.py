"""Measures for each position how far logits are from those of the exact model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Divergence:
    """kl: KL(exact || found) in nats, (n,). same: whether the most likely token is the same, (n,). exact_surprise,
    surprise: -log of the probability of the token that followed, where one did, (predicted,)."""

    kl: Floats
    same: NDArray[np.bool_]
    exact_surprise: Floats
    surprise: Floats

    def summary(self) -> dict[str, float]:
        """Returns the figures over all positions. perplexity_ratio: the perplexity of `found` divided by that of the
        exact model."""
        return {
            "kl_nats": float(f"{self.kl.mean():.3e}"),
            "kl_p99": float(f"{np.percentile(self.kl, 99):.3e}"),
            "kl_max": float(f"{self.kl.max():.3e}"),
            "same_best_token": round(float(self.same.mean()), 5),
            "perplexity_ratio": round(float(np.exp(self.surprise.mean() - self.exact_surprise.mean())), 5),
        }


def divergence(exact: NDArray[np.float32], found: NDArray[np.float32], ids: NDArray[np.int32]) -> Divergence:
    """Returns how far `found` is from `exact`. Both are logits (n, vocabulary). ids: the tokens (n,); ids[i + 1]
    follows row i."""
    truth, own = _log_softmax(exact), _log_softmax(found)
    rows = np.arange(len(ids) - 1)
    return Divergence(
        kl=(np.exp(truth) * (truth - own)).sum(axis=1),
        same=truth.argmax(axis=1) == own.argmax(axis=1),
        exact_surprise=-truth[rows, ids[1:]],
        surprise=-own[rows, ids[1:]],
    )


def joined(parts: Iterable[Divergence]) -> Divergence:
    """Returns the divergences of several texts joined into one."""
    columns: list[Any] = [np.concatenate(each) for each in zip(*map(_columns, parts), strict=True)]
    return Divergence(*columns)


def _columns(part: Divergence) -> tuple[Any, ...]:
    return part.kl, part.same, part.exact_surprise, part.surprise


def _log_softmax(logits: NDArray[np.float32]) -> Floats:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found
