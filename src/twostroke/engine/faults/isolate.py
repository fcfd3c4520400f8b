"""A fault in one request's work ends only that request: the sequences of a failed step are computed again, one by one.

A step writes only keys and values of its own positions, and draws depend on (seed, position): running it twice, or in
parts, gives the same bits. So a failed step is run again at once, one sequence at a time.

States are different: a failed step may have changed some of them. The result then has these sequences in `undone`. The
scheduler lets them begin again from their last snapshots and marks what failed as `alone`. This executor runs each
sequence marked `alone` by itself, until it has passed the place of the fault. So each round gets further, or ends a
request.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from typing import Any

from twostroke.engine.core import STEP_FAULT
from twostroke.engine.executor import Executor
from twostroke.types.plan import Plan, PlannedSequence, SpanWork
from twostroke.types.result import StepResult


class IsolatingExecutor:
    """Satisfies engine.executor.Executor. When a step fails, it runs the sequences one by one, so that only the faulty
    request fails. report: called with every fault in full."""

    def __init__(self, inner: Executor, report: Callable[[BaseException], None]) -> None:
        self._inner = inner
        self._report = report

    def execute(self, plan: Plan) -> StepResult:
        """Returns the plan's result. When a step fails, its sequences are computed again, one by one; `failed` has
        those that fail again. Raises when all of them fail."""
        if plan.span is not None and plan.sequences:
            return self._beside_span(plan, plan.span)
        if len(plan.sequences) > 1 and any(sequence.alone for sequence in plan.sequences):
            return self._in_parts(plan)
        try:
            return self._inner.execute(plan)
        except Exception as error:
            if len(plan.sequences) < 2:
                raise
            self._report(error)
            if _has_states(plan):
                return StepResult({}, undone=_names(plan.sequences))
            return self._each_alone(plan, error)

    def _beside_span(self, plan: Plan, span: SpanWork) -> StepResult:
        """Run the sequences, and then the pieces of the image span in a step of their own, so that a fault in either
        does not end the other."""
        results = [self.execute(replace(plan, span=None))]
        try:
            results.append(self._inner.execute(replace(_part(plan, ()), encode=None, state_copies=(), page_copies=())))
        except Exception as error:
            self._report(error)
            results.append(StepResult({}, {span.request_id: STEP_FAULT}))
        return joined(results)

    def _each_alone(self, plan: Plan, first: Exception) -> StepResult:
        results: list[StepResult] = []
        failed: dict[str, str] = {}
        for sequence in plan.sequences:
            try:
                results.append(self._inner.execute(_part(plan, (sequence,))))
            except Exception as error:
                self._report(error)
                failed[sequence.request.request_id] = STEP_FAULT
        if not results:
            raise first
        return joined([*results, StepResult({}, failed)])

    def _in_parts(self, plan: Plan) -> StepResult:
        """Runs each sequence marked `alone` as a step of its own, and then the remaining sequences together. The first
        of these steps also makes the plan's copies of states and pages.

        When the first step fails, some copies may be missing, so no further step is run. All remaining sequences are
        then in `undone`, and the scheduler lets them begin again.
        """
        others = tuple(sequence for sequence in plan.sequences if not sequence.alone)
        parts = [(sequence,) for sequence in plan.sequences if sequence.alone] + ([others] if others else [])
        results: list[StepResult] = []
        for index, sequences in enumerate(parts):
            part = _part(plan, sequences)
            part = part if index == 0 else replace(part, state_copies=(), page_copies=())
            try:
                results.append(self._inner.execute(part))
                continue
            except Exception as error:
                self._report(error)
            alone = sequences[0].alone
            failed = dict.fromkeys(_names(sequences), STEP_FAULT) if alone else {}
            results.append(StepResult({}, failed, undone=frozenset() if alone else _names(sequences)))
            if index == 0:
                left = [sequence for later in parts[1:] for sequence in later]
                results.append(StepResult({}, undone=_names(left)))
                break
        return joined(results)


def _part(plan: Plan, sequences: tuple[PlannedSequence, ...]) -> Plan:
    guesses = sum(len(sequence.draft_token_ids) for sequence in sequences)
    return replace(plan, sequences=sequences, preemptions=(), num_draft_tokens=guesses)


def _has_states(plan: Plan) -> bool:
    return any(sequence.state_slot >= 0 for sequence in plan.sequences)


def _names(sequences: Sequence[PlannedSequence]) -> frozenset[str]:
    return frozenset(sequence.request.request_id for sequence in sequences)


def joined(results: Sequence[StepResult]) -> StepResult:
    """Returns the results of parts of a step as one result: mappings and sets are joined, all other values are added.
    """
    values: dict[str, Any] = {}
    for each in fields(StepResult):
        parts = [part for result in results if (part := getattr(result, each.name)) is not None]
        if not parts:
            continue
        if isinstance(parts[0], Mapping):
            values[each.name] = {k: v for part in parts for k, v in part.items()}
        elif isinstance(parts[0], frozenset):
            values[each.name] = frozenset().union(*parts)
        else:
            values[each.name] = reduce(operator.add, parts)
    return StepResult(**values)
