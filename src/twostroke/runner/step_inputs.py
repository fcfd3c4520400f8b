"""Writes a plan into the inputs of a step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np

from twostroke.ops.operands import I32Array
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.types.plan import Plan
from twostroke.types.spec.formats import PAGE_TOKENS


class StepRow(Protocol):
    """The part of a planned sequence that a step's inputs need; see PlannedSequence."""

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
        """How many rows need logits. They are the sequence's last rows."""

    @property
    def tables(self) -> Sequence[Sequence[int]]:
        """The sequence's pages in each page group."""

    @property
    def state_slot(self) -> int:
        """The slot of the sequence's state."""

    @property
    def adapter(self) -> int:
        """The number of the adapter of the sequence's rows."""

    @property
    def second_text(self) -> int | None:
        """The first position of the second text of a pair, for rerankers that tell the two texts apart; None in other
        sequences."""


def write_plan(plan: Plan, memory: StepMemory) -> StepSizes:
    """Writes the inputs of a plan's step into its memory, with rows in the plan's order. The last rows of each sequence
    that samples are logit rows."""
    return write_sequences(plan.sequences, memory)


def write_sequences(sequences: Sequence[StepRow], memory: StepMemory) -> StepSizes:
    """Writes the inputs of sequences, which may have come from another process.

    It writes all rows at once. With many sequences of one row each, the work for each sequence is most of a step's time
    in Python.
    """
    count, lengths = len(sequences), [sequence.num_tokens for sequence in sequences]
    ends = list(accumulate(lengths))
    total = ends[-1] if ends else 0
    chosen = [row for end, s in zip(ends, sequences, strict=True) for row in range(end - s.sampled_rows, end)]
    memory.batch.row_starts[1 : count + 1] = ends
    memory.batch.context_tokens[:count] = [s.start + s.num_tokens for s in sequences]
    memory.token_ids[:total] = [token_id for sequence in sequences for token_id in sequence.token_ids]
    if memory.has_states:
        memory.state_slots[:count] = [sequence.state_slot for sequence in sequences]
    owners = _write_positions(sequences, memory, lengths, ends)
    if memory.has_adapters:
        memory.adapters[:total] = np.array([sequence.adapter for sequence in sequences], np.int32)[owners]
    if memory.has_types:
        _write_types(sequences, memory, ends)
    _write_pages(sequences, memory, owners)
    memory.choose_logit_rows(chosen)
    return StepSizes(total, count, len(chosen))


def _write_positions(
    sequences: Sequence[StepRow], memory: StepMemory, lengths: Sequence[int], ends: Sequence[int]
) -> I32Array:
    """Writes the positions of all rows. Returns, for each row, the place of its sequence in the plan."""
    count = len(sequences)
    owners = np.arange(count, dtype=np.int32)
    if lengths.count(1) == count:  # as in a step where all sequences decode
        memory.positions[:count] = [sequence.start for sequence in sequences]
        return owners
    shifts = [sequence.start + length - end for sequence, length, end in zip(sequences, lengths, ends, strict=True)]
    owners = np.repeat(owners, lengths)
    memory.positions[: ends[-1]] = np.arange(ends[-1], dtype=np.int32) + np.array(shifts, np.int32)[owners]
    return owners


def _write_types(sequences: Sequence[StepRow], memory: StepMemory, ends: Sequence[int]) -> None:
    for sequence, end in zip(sequences, ends, strict=True):
        rows, second = slice(end - sequence.num_tokens, end), sequence.second_text
        memory.token_types[rows] = 0 if second is None else memory.positions[rows] >= second


def _write_pages(sequences: Sequence[StepRow], memory: StepMemory, owners: I32Array) -> None:
    """Writes the page tables that have changed since the last step, and the slots of new K and V. In a device's block
    of inputs, sampling data may lie in the place of unused table rows. So rows after the last sequence are written
    again when they are next needed."""
    tables = [memory.tables(sequence.tables) for sequence in sequences]
    places, offsets = np.divmod(memory.positions[: len(owners)], np.int32(PAGE_TOKENS))
    for group, inputs in enumerate(memory.page_inputs[: len(tables[0]) if tables else 0]):
        pages, written = inputs.batch.page_table, inputs.written
        for index, of_sequence in enumerate(tables):
            table = of_sequence[group]
            if written[index] is not table:
                pages[index, : len(table)] = table
                written[index] = table if isinstance(table, tuple) else None  # a list is not kept: it may change
        # A device's block holds the sampling data in the place of the tables that this step does not need.
        written[len(tables) :] = [None] * (len(written) - len(tables))
        inputs.slots[: len(owners)] = pages[owners, places] * PAGE_TOKENS + offsets
