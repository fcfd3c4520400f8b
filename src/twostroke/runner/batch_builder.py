"""A plan as arrays.

Knows: the plan's fields, the batch's shapes.
Must not know: weights, sampling.
"""

from __future__ import annotations

import numpy as np

from twostroke.models.batch import Batch
from twostroke.ops.operands import AttentionBatch
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.plan import Plan, PlannedSequence


def build_batch(plan: Plan) -> Batch:
    """Rows in plan order; one logit row for each sequence that samples."""
    sequences = plan.sequences
    counts = [sequence.num_tokens for sequence in sequences]
    row_starts = np.zeros(len(sequences) + 1, np.int32)
    np.cumsum(counts, out=row_starts[1:])
    total = int(row_starts[-1])
    token_ids = np.empty(total, np.int32)
    positions = np.empty(total, np.int32)
    slots = np.empty(total, np.int32)
    page_table = np.zeros((len(sequences), max(len(s.page_ids) for s in sequences)), np.int32)
    for index, sequence in enumerate(sequences):
        rows = slice(int(row_starts[index]), int(row_starts[index + 1]))
        page_table[index, : len(sequence.page_ids)] = sequence.page_ids
        _fill_rows(sequence, token_ids[rows], positions[rows], slots[rows], page_table[index])
    context = np.array([s.start + s.num_tokens for s in sequences], np.int32)
    logit_rows = np.array([int(row_starts[i + 1]) - 1 for i, s in enumerate(sequences) if s.samples], np.int32)
    return Batch(token_ids, positions, slots, AttentionBatch(row_starts, context, page_table), logit_rows)


def _fill_rows(
    sequence: PlannedSequence, token_ids: np.ndarray, positions: np.ndarray, slots: np.ndarray, pages: np.ndarray
) -> None:
    """Write one sequence's rows into views of the batch."""
    start, stop = sequence.start, sequence.start + sequence.num_tokens
    token_ids[:] = sequence.known_token_ids[start:stop]
    positions[:] = np.arange(start, stop, dtype=np.int32)
    slots[:] = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
