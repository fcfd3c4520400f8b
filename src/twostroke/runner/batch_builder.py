"""A plan as arrays, in the same places every time, so that a recorded step finds them.

Knows: the plan's fields, the batch's shapes.
Must not know: weights, sampling.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from twostroke.models.batch import Batch
from twostroke.ops.operands import AttentionBatch, I32Array
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.plan import Plan, PlannedSequence

MAX_SHAPES = 128
"""Shapes whose views are kept; a decode step has one for each number of sequences."""

Shape = tuple[int, int, int]


class BatchBuilder:
    """Owns the arrays; a batch is valid until the next is built. The same shape gives the same Batch object.

    max_tokens: rows of a step. max_sequences: sequences of a step. max_pages: pages of one sequence.
    """

    def __init__(self, max_tokens: int, max_sequences: int, max_pages: int) -> None:
        self._token_ids, self._positions, self._slots = (np.empty(max_tokens, np.int32) for _ in range(3))
        self._row_starts = np.zeros(max_sequences + 1, np.int32)
        self._context_tokens, self._logit_rows = (np.empty(max_sequences, np.int32) for _ in range(2))
        self._page_table = np.zeros((max_sequences, max_pages), np.int32)
        self._batches: OrderedDict[Shape, Batch] = OrderedDict()

    def build(self, plan: Plan) -> Batch:
        """Rows in plan order; one logit row for each sequence that samples."""
        sequences = plan.sequences
        ends = np.cumsum([sequence.num_tokens for sequence in sequences], dtype=np.int32)
        chosen = [int(end) - 1 for end, sequence in zip(ends, sequences, strict=True) if sequence.samples]
        batch = self._batch((plan.num_tokens, len(sequences), len(chosen)))
        attention = batch.attention
        attention.row_starts[1:] = ends
        attention.context_tokens[:] = [s.start + s.num_tokens for s in sequences]
        batch.logit_rows[:] = chosen
        for index, sequence in enumerate(sequences):
            attention.page_table[index, : len(sequence.page_ids)] = sequence.page_ids
            _fill_rows(sequence, batch, slice(int(ends[index]) - sequence.num_tokens, int(ends[index])), index)
        return batch

    def _batch(self, shape: Shape) -> Batch:
        found = self._batches.get(shape)
        if found is None:
            found = self._batches[shape] = self._views(*shape)
            if len(self._batches) > MAX_SHAPES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(shape)
        return found

    def _views(self, tokens: int, sequences: int, chosen: int) -> Batch:
        attention = AttentionBatch(
            self._row_starts[: sequences + 1], self._context_tokens[:sequences], self._page_table[:sequences]
        )
        rows = (self._token_ids[:tokens], self._positions[:tokens], self._slots[:tokens])
        return Batch(*rows, attention, self._logit_rows[:chosen])


def _fill_rows(sequence: PlannedSequence, batch: Batch, rows: slice, index: int) -> None:
    """Write one sequence's rows into the batch."""
    start, stop = sequence.start, sequence.start + sequence.num_tokens
    pages: I32Array = batch.attention.page_table[index]
    positions = batch.positions[rows]
    batch.token_ids[rows] = sequence.known_token_ids[start:stop]
    positions[:] = np.arange(start, stop, dtype=np.int32)
    batch.slots[rows] = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
