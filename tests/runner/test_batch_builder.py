"""A plan as arrays: what they say, and that the same shape lies in the same place."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twostroke.runner import batch_builder
from twostroke.runner.batch_builder import BatchBuilder
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import Request
from twostroke.types.sampling_params import SamplingParams

MAX_PAGES = 6


def planned(index: int, start: int, num_tokens: int, behind: int) -> PlannedSequence:
    known = [1000 * index + i for i in range(start + num_tokens + behind)]
    pages = tuple(20 * index + 7 * i % 5 for i in range(-(-(start + num_tokens) // PAGE_TOKENS)))
    request = Request(f"r{index}", f"r{index}", tuple(known), SamplingParams(), 0, 8, frozenset(), 0.0)
    return PlannedSequence(request, start, num_tokens, known, pages, samples=behind == 0)


sequences = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 1)), min_size=1, max_size=5).map(
    lambda rows: [planned(i, *row) for i, row in enumerate(rows)]
)


@given(st.lists(sequences, min_size=1, max_size=4))
def test_batches_say_what_was_planned(plans: list[list[PlannedSequence]]) -> None:
    builder = BatchBuilder(200, 8, MAX_PAGES)
    for step, plan in enumerate(plans):
        batch = builder.build(Plan(step, tuple(plan)))
        row = 0
        for index, sequence in enumerate(plan):
            assert batch.attention.row_starts[index] == row
            assert batch.attention.context_tokens[index] == sequence.start + sequence.num_tokens
            for position in range(sequence.start, sequence.start + sequence.num_tokens):
                page = sequence.page_ids[position // PAGE_TOKENS]
                assert batch.token_ids[row] == sequence.known_token_ids[position]
                assert batch.positions[row] == position
                assert batch.slots[row] == page * PAGE_TOKENS + position % PAGE_TOKENS
                row += 1
            assert tuple(batch.attention.page_table[index, : len(sequence.page_ids)]) == sequence.page_ids
        assert batch.attention.row_starts[len(plan)] == row == len(batch.token_ids)
        ends = np.cumsum([s.num_tokens for s in plan]) - 1
        assert list(batch.logit_rows) == [int(e) for e, s in zip(ends, plan, strict=True) if s.samples]


def test_the_same_shape_is_the_same_object_in_the_same_place() -> None:
    builder = BatchBuilder(64, 4, MAX_PAGES)
    first = builder.build(Plan(1, (planned(0, 5, 1, 0), planned(1, 9, 1, 0))))
    addresses = [a.ctypes.data for a in (first.token_ids, first.slots, first.attention.page_table)]
    other = builder.build(Plan(2, (planned(0, 0, 20, 1),)))
    again = builder.build(Plan(3, (planned(2, 30, 1, 0), planned(3, 1, 1, 0))))
    assert again is first and other is not first
    assert addresses == [a.ctypes.data for a in (again.token_ids, again.slots, again.attention.page_table)]


def test_old_shapes_are_forgotten() -> None:
    builder = BatchBuilder(batch_builder.MAX_SHAPES + 20, 1, 20)
    first = builder.build(Plan(0, (planned(0, 0, 1, 0),)))
    for tokens in range(2, batch_builder.MAX_SHAPES + 3):
        builder.build(Plan(tokens, (planned(0, 0, tokens, 0),)))
    assert builder.build(Plan(0, (planned(0, 0, 1, 0),))) is not first
