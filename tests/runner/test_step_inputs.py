"""A plan as arrays: their contents, and that they always lie in the same place."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twostroke.models.common.registry import read_model
from twostroke.ops.program.place import LINE_BYTES
from twostroke.ops.program.values import Size
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.runner.step_inputs import write_plan
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

MODEL = read_model(
    {
        "architectures": ["LlamaForCausalLM"], "vocab_size": 99, "hidden_size": 40, "intermediate_size": 72,
        "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 12,
    }
)  # fmt: skip


def new_memory() -> StepMemory:
    return StepMemory(MODEL.program, {}, {}, KVKind.F32, MemorySizes(100, 96, 200, 8))


def planned(index: int, start: int, num_tokens: int, behind: int) -> PlannedSequence:
    known = [1000 * index + i for i in range(start + num_tokens + behind)]
    pages = tuple(20 * index + 7 * i % 5 for i in range(-(-(start + num_tokens) // PAGE_TOKENS)))
    request = Request(f"r{index}", f"r{index}", tuple(known), SamplingParams(), 0, 8, frozenset(), 0.0)
    return PlannedSequence(request, start, num_tokens, known, (pages,), behind == 0, Role.PREFILL)


sequences = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 1)), min_size=1, max_size=5).map(
    lambda rows: [planned(i, *row) for i, row in enumerate(rows)]
)


@given(st.lists(sequences, min_size=1, max_size=4))
def test_the_inputs_say_what_was_planned(plans: list[list[PlannedSequence]]) -> None:
    memory = new_memory()
    for step, plan in enumerate(plans):
        sizes = write_plan(Plan(step, tuple(plan)), memory)
        row = 0
        for index, sequence in enumerate(plan):
            assert memory.batch.row_starts[index] == row
            assert memory.batch.context_tokens[index] == sequence.start + sequence.num_tokens
            for position in range(sequence.start, sequence.start + sequence.num_tokens):
                page = sequence.page_ids[position // PAGE_TOKENS]
                assert memory.token_ids[row] == sequence.known_token_ids[position]
                assert memory.positions[row] == position
                assert memory.slots[row] == page * PAGE_TOKENS + position % PAGE_TOKENS
                row += 1
            assert tuple(memory.batch.page_table[index, : len(sequence.page_ids)]) == sequence.page_ids
        ends = np.cumsum([s.num_tokens for s in plan]) - 1
        chosen = [int(e) for e, s in zip(ends, plan, strict=True) if s.samples]
        assert memory.batch.row_starts[len(plan)] == row and sizes == StepSizes(row, len(plan), len(chosen))
        assert list(memory.logit_rows[: sizes.logit_rows]) == chosen


def test_rows_of_page_tables_behind_a_step_are_written_again() -> None:
    """The requests to a device lie there, after the inputs that a step uses."""
    memory, plan = new_memory(), [planned(index, 20 * index, 3, 0) for index in range(3)]
    for count in (3, 2, 3):
        sizes = write_plan(Plan(0, tuple(plan[:count])), memory)
        for sequence, row in zip(plan[:count], memory.batch.page_table, strict=False):
            assert tuple(row[: len(sequence.page_ids)]) == sequence.page_ids
        memory.inputs[memory.used_input_bytes(sizes) :] = 255


def test_values_begin_at_cache_lines_and_those_that_live_together_lie_apart() -> None:
    memory, program = new_memory(), MODEL.program
    sizes = StepSizes(200, 8, 8)
    roots = {value.root for call in program.calls for value in (*call.reads(), *filter(None, [call.result]))}
    assert len(roots) > 6
    for root in roots:
        assert memory.value(root, sizes).ctypes.data % LINE_BYTES == 0
    for call in program.calls:
        spans = {}
        for value in (*call.reads(), *filter(None, [call.result])):
            array = memory.value(value.root, sizes)
            spans[value.root] = array.ctypes.data, array.ctypes.data + array.nbytes
        ordered = sorted(spans.values())
        assert all(a[1] <= b[0] for a, b in zip(ordered, ordered[1:], strict=False)), call.NAME


def test_memory_is_shared_by_values_that_do_not_live_together() -> None:
    memory, program = new_memory(), MODEL.program
    roots = {value.root for call in program.calls for value in (*call.reads(), *filter(None, [call.result]))}
    rows = {Size.TOKENS: 200, Size.LOGIT_ROWS: 8}
    assert memory._arena.nbytes < sum(4 * rows[root.rows] * root.width for root in roots) / 2
