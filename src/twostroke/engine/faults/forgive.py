"""A fault of a whole step ends the requests of that step and no others. The number of faulty steps in a row is counted.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.engine.core import all_failed
from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class ForgivingExecutor:
    """Satisfies Executor. A step that raises ends only its own requests: they fail, and the engine goes on with the
    next step. report: called with every fault in full."""

    def __init__(self, inner: Executor, report: Callable[[BaseException], None]) -> None:
        self.inner = inner
        self._report = report
        self.faults_in_a_row = 0

    def execute(self, plan: Plan) -> StepResult:
        """Returns the inner executor's result. When that raises an Exception, returns a result in which all sequences
        of the plan have failed."""
        try:
            result = self.inner.execute(plan)
        except Exception as error:
            self.faults_in_a_row += 1
            self._report(error)
            return all_failed(plan)
        self.faults_in_a_row = self.faults_in_a_row + 1 if result.undone else 0
        return result
