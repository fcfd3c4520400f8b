"""The task that a model is served for, and the rows of a prompt that become one vector."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Task(enum.StrEnum):
    """GENERATE: text, token by token. EMBED: one vector for each text. RERANK: scores for each pair of texts."""

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"


class Pooling(enum.StrEnum):
    """The rows of a prompt that are taken. LAST: the last one. CLS: the first one. MEAN: the mean of all.

    MEAN_SQRT: the sum of all, divided by the square root of their number.
    """

    LAST = "last"
    CLS = "cls"
    MEAN = "mean"
    MEAN_SQRT = "mean_sqrt_len"


@dataclass(frozen=True, slots=True)
class PooledRows:
    """How a prompt becomes one vector. skipped: the number of tokens at the beginning that a mean leaves out.

    second_text: the position where the second text of a pair begins, for models that tell the two apart; None for one
    text.
    """

    pooling: Pooling
    skipped: int = 0
    second_text: int | None = None

    def positions(self, num_tokens: int) -> range:
        """The positions of a prompt with `num_tokens` tokens whose rows are taken; at least one."""
        if self.pooling is Pooling.LAST:
            return range(num_tokens - 1, num_tokens)
        if self.pooling is Pooling.CLS:
            return range(1)
        return range(min(self.skipped, num_tokens - 1), num_tokens)

    def divisor(self, num_tokens: int) -> float:
        """Returns the number by which the sum of the rows is divided."""
        count = len(self.positions(num_tokens))
        return math.sqrt(count) if self.pooling is Pooling.MEAN_SQRT else count
