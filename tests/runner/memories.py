"""A step's memory for a test's own model, and steps written into it."""

from __future__ import annotations

import numpy as np

from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.loaded import ModelWeights


def memory_of(
    model: Model, weights: ModelWeights, kind: KVKind, sizes: MemorySizes, program: Program | None = None
) -> StepMemory:
    """A memory for the model's program, or for another form of it."""
    return StepMemory(program or model.program, weights.matrices, weights.vectors, kind, sizes)


def write_rows(memory: StepMemory, token_ids: list[int], start: int, pages: np.ndarray) -> StepSizes:
    """Writes one sequence's tokens at positions from `start` on. Every row needs logits."""
    count = len(token_ids)
    positions = np.arange(start, start + count, dtype=np.int32)
    memory.token_ids[:count] = token_ids
    memory.positions[:count] = positions
    memory.state_slots[0] = memory.sizes.state_slots - 1
    memory.logit_rows[:count] = np.arange(count)
    memory.batch.row_starts[:2] = [0, count]
    memory.batch.context_tokens[0] = start + count
    for inputs in memory.page_inputs:
        inputs.slots[:count] = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
        inputs.batch.page_table[0, : len(pages)] = pages
    return StepSizes(count, 1, count)
