"""Marks steps whose time is no measure of later ones, because memory was being made ready while they ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class ColdSteps:
    """Satisfies Executor. progress: returns how many bytes or pages background work has made ready so far; the number
    stops growing when all are ready.

    The very first step is cold too: code, buffers and weights are touched for the first time.
    """

    def __init__(self, inner: Executor, progress: Callable[[], int]) -> None:
        self._inner = inner
        self._progress = progress
        self._before: int | None = None

    def execute(self, plan: Plan) -> StepResult:
        """Returns the wrapped executor's result, marked as cold when something was made ready since the step before."""
        result = self._inner.execute(plan)
        before, self._before = self._before, self._progress()
        return result if before == self._before else replace(result, cold=True)
