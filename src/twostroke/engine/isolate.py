"""A fault in one request's work ends that request alone: a step that failed is run again, one sequence at a time.

A step writes only keys and values of its own positions, and draws depend on (seed, position): running it twice, or in
parts, gives the same bits. So the others lose a little time and nothing else. A state is not like that: a step that
failed may have changed some of it, and it cannot be run again. There the whole step fails.

Knows: plans, results, the Executor protocol.
Must not know: why a step fails, what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

OWN_FAULT = "The engine failed while it computed this request."


class IsolatingExecutor:
    """Satisfies engine.executor.Executor. report: hears of every fault in full."""

    def __init__(self, inner: Executor, report: Callable[[BaseException], None]) -> None:
        self._inner = inner
        self._report = report

    def execute(self, plan: Plan) -> StepResult:
        """The plan's result; sequences that fail alone too are in `failed`. Raises where all of them do, and where they
        have states."""
        try:
            return self._inner.execute(plan)
        except Exception as error:
            if len(plan.sequences) < 2 or any(sequence.state_slot >= 0 for sequence in plan.sequences):
                raise
            self._report(error)
            return self._each_alone(plan, error)

    def _each_alone(self, plan: Plan, first: Exception) -> StepResult:
        results: list[StepResult] = []
        failed: dict[str, str] = {}
        for sequence in plan.sequences:
            try:
                results.append(self._inner.execute(replace(plan, sequences=(sequence,), preemptions=())))
            except Exception as error:
                self._report(error)
                failed[sequence.request.request_id] = OWN_FAULT
        if not results:
            raise first
        return joined([*results, StepResult({}, failed)])


def joined(results: Sequence[StepResult]) -> StepResult:
    """Results of parts of a step as one: mappings together, seconds added."""
    values: dict[str, Any] = {}
    for each in fields(StepResult):
        parts = [getattr(result, each.name) for result in results]
        is_mapping = isinstance(parts[0], Mapping)
        values[each.name] = {k: v for part in parts for k, v in part.items()} if is_mapping else sum(parts)
    return StepResult(**values)
