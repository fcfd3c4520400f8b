"""Records which requests a step computes before it begins, so that they are known after a crash in native code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Witness(Protocol):
    """Records which requests are computed, so that a crash can be blamed on them. It is called at the beginning and the
    end of each step, on the thread that runs steps: it must be quick, and must not raise."""

    def begins(self, group_ids: Sequence[str]) -> None:
        """Record that a step for these requests begins. An id may occur several times."""

    def ends(self) -> None:
        """Record that the step has ended, successfully or not."""


class WitnessedExecutor:
    """An executor that tells a witness which requests each step computes. Satisfies engine.executor.Executor."""

    def __init__(self, inner: Executor, witness: Witness) -> None:
        self._inner = inner
        self._witness = witness

    def execute(self, plan: Plan) -> StepResult:
        self._witness.begins([sequence.request.group_id for sequence in plan.computed])
        try:
            return self._inner.execute(plan)
        finally:
            self._witness.ends()
