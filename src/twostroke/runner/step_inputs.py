"""A plan written into the inputs of a step.

Knows: the plan's fields, the inputs' shapes.
Must not know: weights, sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from twostroke.ops.operands import I32Array
from twostroke.ops.step_memory import GroupInputs, StepMemory, StepSizes
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.plan import Plan


class StepRow(Protocol):
    """What a step's inputs need of a planned sequence; see there."""

    @property
    def start(self) -> int:
        """The first position of the sequence's rows."""

    @property
    def num_tokens(self) -> int:
        """How many rows the sequence has."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The tokens of the rows."""

    @property
    def sampled_rows(self) -> int:
        """The last rows, which need logits."""

    @property
    def tables(self) -> Sequence[Sequence[int]]:
        """The sequence's pages in each page group."""

    @property
    def state_slot(self) -> int:
        """The slot of the sequence's state."""

    @property
    def adapter(self) -> int:
        """The adapter of the sequence's rows."""

    @property
    def second_text(self) -> int | None:
        """The first position of the second of two texts."""


def write_plan(plan: Plan, memory: StepMemory) -> StepSizes:
    """Rows in plan order; logit rows for the last rows of each sequence that samples."""
    return write_sequences(plan.sequences, memory)


def write_sequences(sequences: Sequence[StepRow], memory: StepMemory) -> StepSizes:
    """Write the inputs of sequences, which may have come from another process."""
    ends = np.cumsum([sequence.num_tokens for sequence in sequences], dtype=np.int32)
    chosen = [row for end, s in zip(ends.tolist(), sequences, strict=True) for row in range(end - s.sampled_rows, end)]
    batch, count = memory.batch, len(sequences)
    batch.row_starts[1 : count + 1] = ends
    batch.context_tokens[:count] = [s.start + s.num_tokens for s in sequences]
    if memory.has_states:
        memory.state_slots[:count] = [sequence.state_slot for sequence in sequences]
    for index, sequence in enumerate(sequences):
        rows = slice(int(ends[index]) - sequence.num_tokens, int(ends[index]))
        _fill_rows(sequence, memory, rows)
        for table, inputs in zip(memory.tables(sequence.tables), memory.page_inputs, strict=False):
            inputs.batch.page_table[index, : len(table)] = table
            _fill_slots(inputs, memory.positions[rows], rows, index)
    memory.choose_logit_rows(chosen)
    return StepSizes(int(ends[-1]) if count else 0, count, len(chosen))


def _fill_rows(sequence: StepRow, memory: StepMemory, rows: slice) -> None:
    """Write one sequence's tokens, positions and adapter."""
    start, stop = sequence.start, sequence.start + sequence.num_tokens
    memory.token_ids[rows] = sequence.token_ids
    memory.positions[rows] = np.arange(start, stop, dtype=np.int32)
    if memory.has_adapters:
        memory.adapters[rows] = sequence.adapter
    if memory.has_types:
        second = sequence.second_text
        memory.token_types[rows] = 0 if second is None else memory.positions[rows] >= second


def _fill_slots(inputs: GroupInputs, positions: I32Array, rows: slice, index: int) -> None:
    """Where one sequence's new K and V go, in one group."""
    pages = inputs.batch.page_table[index]
    inputs.slots[rows] = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
