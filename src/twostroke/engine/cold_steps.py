"""Marks steps that were slower because memory was being made ready meanwhile, so that nothing is learned from their
times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class ColdSteps:
    """Satisfies Executor. It marks a result as cold when background work, such as loading weights into memory, has gone
    on since the step before. progress: returns how many bytes or pages this work has made ready so far.

    The very first step is marked too: it touches code, buffers and weights for the first time.
    """

    def __init__(self, inner: Executor, progress: Callable[[], int]) -> None:
        self._inner = inner
        self._progress = progress
        self._before: int | None = None

    def execute(self, plan: Plan) -> StepResult:
        """Returns the wrapped executor's result. It is marked as cold when weights or other memory were made ready
        since the step before."""
        result = self._inner.execute(plan)
        before, self._before = self._before, self._progress()
        return result if before == self._before else replace(result, cold=True)
