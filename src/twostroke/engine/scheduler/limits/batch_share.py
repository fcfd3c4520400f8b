"""Batch work gets the time that interactive work leaves, but at least a tenth of the prefill tokens."""

from __future__ import annotations

BATCH_SHARE = 0.1


class BatchShare:
    """Gives batch work at least the share `share` of the prefill tokens that are computed while batch work waits.

    Bound. Let b be the prefill tokens of batch work so far, and s the tokens of the largest step. While batch work is
    pending, interactive prefill has had at most b * (1 - share) / share + 2 s tokens. Whenever it has had more than the
    first term, batch work is first in the next step, unless AgeingTurns puts the oldest sequence first. Let n be the
    prefill tokens of one batch request and of all batch work before it. Once max_sequences allows this request to run,
    at most n * (1 - share) / share + 2 s tokens of interactive prefill come before its first token.
    """

    def __init__(self, share: float = BATCH_SHARE) -> None:
        self.share = share
        self._interactive_tokens = 0
        self._batch_tokens = 0

    @property
    def due(self) -> bool:
        """True when the next step must compute batch work first."""
        return self._batch_tokens < self.share * (self._interactive_tokens + self._batch_tokens)

    def planned(self, interactive_tokens: int, batch_tokens: int, pending: bool) -> None:
        """Count a step's prefill tokens. pending: True when batch work waited for the step; when none waited, both
        counts begin again."""
        if not pending:
            self._interactive_tokens = self._batch_tokens = 0
            return
        self._interactive_tokens += interactive_tokens
        self._batch_tokens += batch_tokens
