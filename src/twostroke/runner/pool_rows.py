"""Adds up the rows of pooled prompts. The sums are the result of a step whose model makes vectors.

The rows of a prompt are added one after the other, in order, in float64, whichever steps computed them. So the sum does
not depend on how the prompt was divided into chunks, or on the other requests in the steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.step_memory import StepSizes
from twostroke.runner.forward import Forward
from twostroke.types.plan import Plan, PlannedSequence

NOT_FINITE = "the model made numbers that are not finite"


def pool_rows(plan: Plan, forward: Forward, sizes: StepSizes) -> dict[str, bytes]:
    """Returns, by request id, the sum of a request's rows, including those of earlier steps, as bytes of float64. The
    result has an entry for each pooled request with rows in this step. The step must have run; its logits are
    overwritten."""
    rows, owners = _wanted(plan)
    sums: dict[str, NDArray[np.float64]] = {}
    for begin in range(0, len(rows), forward.max_rows):
        end = begin + forward.max_rows
        values = forward.logits(np.array(rows[begin:end], np.int32), sizes)
        for owner, value in zip(owners[begin:end], values, strict=True):
            request_id = owner.request.request_id
            if request_id not in sums:
                sums[request_id] = _before(owner, value.size)
            sums[request_id] += value
    return {request_id: total.tobytes() for request_id, total in sums.items()}


def _wanted(plan: Plan) -> tuple[list[int], list[PlannedSequence]]:
    """Returns the rows of the batch that are pooled, and the sequence of each row."""
    rows: list[int] = []
    owners: list[PlannedSequence] = []
    first = 0
    for sequence in plan.sequences:
        if sequence.request.pooling is not None:
            rows += range(first + sequence.scores.start - sequence.start, first + sequence.scores.stop - sequence.start)
            owners += [sequence] * len(sequence.scores)
        first += sequence.num_tokens
    return rows, owners


def _before(sequence: PlannedSequence, width: int) -> NDArray[np.float64]:
    """Returns the sum of the sequence's rows of earlier steps; zeros where there are none."""
    return np.frombuffer(sequence.pooled).copy() if sequence.pooled else np.zeros(width)
