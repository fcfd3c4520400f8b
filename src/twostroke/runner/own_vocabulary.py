"""Runs a draft head whose vocabulary is a part of the model's, and gives its logits the model's token ids."""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.forward import Forward

NEVER = np.float32(-1e30)
"""The logit of a token that the draft head lacks. It is finite, because a logit that is not finite counts as a fault.
"""


class OwnVocabulary:
    """Runs a draft head that has a smaller vocabulary than the model, and returns logits over the model's vocabulary.
    Tokens that the draft head lacks get the logit NEVER. Satisfies Forward. tokens: the model's token id of each logit
    of the draft head."""

    def __init__(self, inner: Forward, tokens: I32Array, vocab_size: int) -> None:
        self._inner, self._tokens, self._vocab_size = inner, tokens, vocab_size

    def __call__(self, sizes: StepSizes) -> F32Array:
        return self._spread(self._inner(sizes))

    @property
    def max_rows(self) -> int:
        return self._inner.max_rows

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        return self._spread(self._inner.logits(rows, sizes))

    def _spread(self, found: F32Array) -> F32Array:
        out = np.full((len(found), self._vocab_size), NEVER, np.float32)
        out[:, self._tokens] = found
        return out
