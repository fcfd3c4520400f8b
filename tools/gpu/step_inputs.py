"""Writes the inputs of a step: rows, positions and pages of its sequences."""

from __future__ import annotations

import numpy as np

from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.types.spec.formats import PAGE_TOKENS


def write_step(memory: StepMemory, rows: int, sequences: int, context: int) -> StepSizes:
    """Write a step in which each sequence has `context` tokens and computes its last rows. Sequences share pages when
    the pool has fewer pages than they need."""
    each, pages = rows // sequences, -(-context // PAGE_TOKENS)
    memory.token_ids[:rows] = np.arange(rows) % 200
    positions = np.tile(np.arange(context - each, context, dtype=np.int32), sequences)
    memory.positions[:rows] = positions
    memory.batch.row_starts[: sequences + 1] = np.arange(sequences + 1) * each
    memory.batch.context_tokens[:sequences] = context
    memory.logit_rows[:sequences] = np.arange(1, sequences + 1) * each - 1
    for index, group in enumerate(memory.page_inputs):
        table = np.arange(sequences * pages) % memory.sizes.pages_of(index)
        group.batch.page_table[:sequences, :pages] = table.reshape(sequences, pages)
        owner = np.repeat(np.arange(sequences), each)
        slots = group.batch.page_table[owner, positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
        group.slots[:rows] = slots
    return StepSizes(rows, sequences, sequences)
