"""A plan written into the inputs of a step.

Knows: the plan's fields, the inputs' shapes.
Must not know: weights, sampling.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.plan import Plan, PlannedSequence


def write_plan(plan: Plan, memory: StepMemory) -> StepSizes:
    """Rows in plan order; one logit row for each sequence that samples."""
    sequences = plan.sequences
    ends = np.cumsum([sequence.num_tokens for sequence in sequences], dtype=np.int32)
    chosen = [int(end) - 1 for end, sequence in zip(ends, sequences, strict=True) if sequence.samples]
    batch, count = memory.batch, len(sequences)
    batch.row_starts[1 : count + 1] = ends
    batch.context_tokens[:count] = [s.start + s.num_tokens for s in sequences]
    memory.logit_rows[: len(chosen)] = chosen
    for index, sequence in enumerate(sequences):
        batch.page_table[index, : len(sequence.page_ids)] = sequence.page_ids
        _fill_rows(sequence, memory, slice(int(ends[index]) - sequence.num_tokens, int(ends[index])), index)
    return StepSizes(plan.num_tokens, count, len(chosen))


def _fill_rows(sequence: PlannedSequence, memory: StepMemory, rows: slice, index: int) -> None:
    """Write one sequence's rows."""
    start, stop = sequence.start, sequence.start + sequence.num_tokens
    pages = memory.batch.page_table[index]
    positions = memory.positions[rows]
    memory.token_ids[rows] = sequence.known_token_ids[start:stop]
    positions[:] = np.arange(start, stop, dtype=np.int32)
    memory.slots[rows] = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
