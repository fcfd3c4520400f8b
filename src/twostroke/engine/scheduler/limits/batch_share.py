"""Batch work takes what interactive work leaves, and a tenth in any case."""

from __future__ import annotations

BATCH_SHARE = 0.1


class BatchShare:
    """At least `share` of the prefill tokens that are computed while batch work waits are of batch work.

    Bound. While batch work is pending, interactive prefill has had at most b * (1 - share) / share + 2 s tokens. Here b
    is the tokens of batch work and s the largest step. Whenever it has had more than the first term, batch work is
    first in the next step except for one turn of the oldest (engine/scheduler/ageing.py). Count n tokens of batch work,
    those before it included. Once there is a place for it, it waits for at most n * (1 - share) / share + 2 s tokens of
    interactive prefill.
    """

    def __init__(self, share: float = BATCH_SHARE) -> None:
        self.share = share
        self._interactive_tokens = 0
        self._batch_tokens = 0

    @property
    def due(self) -> bool:
        """True when batch work must be first."""
        return self._batch_tokens < self.share * (self._interactive_tokens + self._batch_tokens)

    def planned(self, interactive_tokens: int, batch_tokens: int, pending: bool) -> None:
        """Count a step's prefill tokens. pending: True when batch work waited for the step; when none does, nothing is
        owed."""
        if not pending:
            self._interactive_tokens = self._batch_tokens = 0
            return
        self._interactive_tokens += interactive_tokens
        self._batch_tokens += batch_tokens
