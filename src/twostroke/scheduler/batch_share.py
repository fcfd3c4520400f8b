"""Batch work takes what interactive work leaves, and a tenth in any case.

Knows: prefill tokens of the two classes.
Must not know: which sequences they are.
"""

from __future__ import annotations

BATCH_SHARE = 0.1


class BatchShare:
    """Of the prefill tokens computed while batch work waits, at least `share` go to it.

    Bound. While batch work is pending, interactive prefill gets at most (b + s) * (1 - share) / share tokens for b of
    batch, where s is the largest step: so batch work of n tokens waits for at most n * (1 - share) / share tokens of
    interactive prefill and one step.
    """

    def __init__(self, share: float = BATCH_SHARE) -> None:
        self.share = share
        self._interactive_tokens = 0
        self._batch_tokens = 0

    @property
    def due(self) -> bool:
        """True where batch work must be first."""
        return self._batch_tokens < self.share * (self._interactive_tokens + self._batch_tokens)

    def planned(self, interactive_tokens: int, batch_tokens: int, pending: bool) -> None:
        """After each step. pending: batch work waited for it; where none does, nothing is owed."""
        if not pending:
            self._interactive_tokens = self._batch_tokens = 0
            return
        self._interactive_tokens += interactive_tokens
        self._batch_tokens += batch_tokens
