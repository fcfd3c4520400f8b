"""Marks steps whose time is no measure of later ones, because memory was being made ready while they ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class ColdSteps:
    """Satisfies Executor. progress: bytes or pages that background work has made ready so far; it stops when all are.

    The very first step is cold too: code, buffers and weights are touched for the first time.
    """

    def __init__(self, inner: Executor, progress: Callable[[], int]) -> None:
        self._inner = inner
        self._progress = progress
        self._before: int | None = None

    def execute(self, plan: Plan) -> StepResult:
        """The wrapped executor's result, marked where something was made ready since the step before."""
        result = self._inner.execute(plan)
        before, self._before = self._before, self._progress()
        return result if before == self._before else replace(result, cold=True)
