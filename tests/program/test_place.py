"""place: values with overlapping lifetimes never share a byte, and other values may."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.program.programs import EPS, RandomProgram
from tests.tiers import examples
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.check import writes
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.place import LINE_BYTES, place
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Size, Value
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.rms_norm import rms_norm


def lines_of(program: Program, value: Value, tokens: int, logit_rows: int) -> range:
    """The cache lines of the arena that the value's owner takes."""
    placement, root = place(program, tokens, logit_rows), value.root
    rows = logit_rows if root.rows is Size.LOGIT_ROWS else tokens
    first = placement.offsets[root]
    assert first % LINE_BYTES == 0 and first + 4 * rows * root.width <= placement.num_bytes
    return range(first // LINE_BYTES, -(-(first + 4 * rows * root.width) // LINE_BYTES))


def run_over_lines(program: Program, tokens: int, logit_rows: int) -> None:
    """Goes through the calls, the head twice, and records which value wrote each line of the arena last."""
    writer: dict[int, Value] = {}
    for call in (*program.body, *program.head, *program.head):
        for value in call.reads():
            for line in lines_of(program, value, tokens, logit_rows):
                assert writer.get(line) is value.root, f"{call.NAME} reads what another value was written over"
        for value in writes(call):
            writer.update(dict.fromkeys(lines_of(program, value, tokens, logit_rows), value.root))
    for line in lines_of(program, program.logits, tokens, logit_rows):
        assert writer[line] is program.logits.root


@settings(max_examples=examples(80), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 14), st.integers(1, 9), st.integers(1, 5))
def test_no_value_is_written_over_while_it_is_needed(
    random: object, num_calls: int, tokens: int, logit_rows: int
) -> None:
    program = RandomProgram(random, num_calls).program  # type: ignore[arg-type]
    for form in (program, fuse(program, PATTERNS)):
        run_over_lines(form, tokens, logit_rows)


def chain(length: int) -> Program:
    """A program in which each call reads the result of the one before, all with 16 columns."""
    trace = Tracer()
    x = embed(trace.matrix("embedding", {"wte": 11}, 16), trace.token_ids, trace)
    for index in range(length):
        x = rms_norm(x, trace.vector(f"norm{index}", 16), EPS)
    return trace.program(linear(gather_rows(x, trace.logit_rows), trace.matrix("head", {"head": 16}, 16)))


def test_a_long_chain_needs_no_more_memory_than_a_short_one() -> None:
    assert place(chain(30), 8, 8).num_bytes == place(chain(3), 8, 8).num_bytes == 3 * 8 * 16 * 4


def test_what_the_head_reads_stays_until_the_end() -> None:
    """The head may run again for other rows of the same step."""
    program = chain(1)
    read = lines_of(program, program.body[-1].result, 4, 4)  # type: ignore[arg-type]
    for call in program.head:
        assert call.result is not None and not set(read) & set(lines_of(program, call.result, 4, 4))


def test_logits_stay_where_calls_follow_them() -> None:
    trace = Tracer()
    x = embed(trace.matrix("embedding", {"wte": 11}, 16), trace.token_ids, trace)
    logits = linear(gather_rows(x, trace.logit_rows), trace.matrix("head", {"head": 16}, 16))
    later = rms_norm(logits, trace.vector("first", 16), EPS)
    rms_norm(later, trace.vector("second", 16), EPS)
    run_over_lines(trace.program(logits), tokens=4, logit_rows=4)
