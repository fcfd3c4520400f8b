"""check: it finds values that are read before they are written, or after something else was written there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.program.programs import EPS, RandomProgram, rows_of
from tests.tiers import examples
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.products.embed import Embed
from twostroke.ops.products.feed_forward import FeedForward
from twostroke.ops.products.linear import linear
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value, join
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.head_norm import head_norm
from twostroke.ops.rows.pointwise import PointStep, Pointwise, program_of
from twostroke.ops.rows.rms_norm import RmsNorm


def embedded(trace: Tracer) -> tuple[Op, Value]:
    """A call that writes 8 columns, and its result."""
    out = rows_of(trace, 8)
    return Embed(out, trace.matrix("embedding", {"wte": 11}, 8), trace.token_ids), out


def test_what_was_never_written_is_found() -> None:
    trace = Tracer()
    first, x = embedded(trace)
    unknown = rows_of(trace, 8)
    with pytest.raises(ValueError, match=r"call 1, pointwise reads columns \[0, 8\) before they are written"):
        check(Program.of((first, Pointwise(x.written(), program_of(PointStep.PLUS_Y), y=unknown)), x))
    with pytest.raises(ValueError, match="the result reads"):
        check(Program.of((first,), unknown))


def test_calls_in_the_wrong_order_are_found() -> None:
    trace = Tracer()
    first, x = embedded(trace)
    normed = rows_of(trace, 8)
    norm = RmsNorm(normed, x, trace.vector("norm", 8), EPS)
    check(Program.of((first, norm), normed))
    with pytest.raises(ValueError, match="before they are written"):
        check(Program.of((norm, first), normed))


def test_half_written_is_not_written() -> None:
    trace = Tracer()
    low, high = rows_of(trace, 16).split(8, 8)
    half = Embed(low, trace.matrix("embedding", {"wte": 11}, 8), trace.token_ids)
    check(Program.of((half,), low.columns(2, 4)))
    with pytest.raises(ValueError, match=r"reads columns \[0, 16\) before they are written"):
        check(Program.of((half,), join(low, high)))


def test_what_was_overwritten_is_found() -> None:
    trace = Tracer()
    x = rows_of(trace, 8)
    first = Embed(x, trace.matrix("embedding", {"wte": 11}, 8), trace.token_ids)
    changed = x.written()
    norm, other = RmsNorm(changed, x, trace.vector("norm", 8), EPS), rows_of(trace, 8)
    check(Program.of((first, norm), changed))
    with pytest.raises(ValueError, match=r"call 2, rms_norm reads columns \[0, 8\) of a value that was overwritten"):
        check(Program.of((first, norm, RmsNorm(other, x, trace.vector("n", 8), EPS)), other))


def test_a_part_that_was_overwritten_is_found_and_its_neighbour_is_not() -> None:
    trace = Tracer()
    first, x = embedded(trace)
    trace.record(first)
    low, high = x.split(4, 4)
    changed = head_norm(low.heads(2), trace.vector("norm", 2), EPS)
    both = join(changed, high.heads(2)).flat()
    check(trace.program(linear(gather_rows(both, trace.logit_rows), trace.matrix("head", {"head": 11}, 8))))
    calls = (first, *trace.program(both).body[1:2])
    check(Program.of(calls, high))
    for stale in (x, low):
        with pytest.raises(ValueError, match="overwritten"):
            check(Program.of(calls, stale))


def test_room_to_work_in_holds_nothing_afterwards() -> None:
    trace = Tracer()
    first, x = embedded(trace)
    normed = rows_of(trace, 8)
    norm = RmsNorm(normed, x, trace.vector("norm", 8), EPS)
    middle, out = rows_of(trace, 12), x.written()
    up, down = trace.matrix("gate_up", {"up": 24}, 8), trace.matrix("down", {"down": 8}, 12)
    calls = (first, norm, FeedForward(out, normed, up, down, middle))
    check(Program.of(calls, out))
    with pytest.raises(ValueError, match="overwritten"):
        check(Program.of(calls, middle))


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 12))
def test_what_a_model_may_do_passes_fused_or_not(random: object, num_calls: int) -> None:
    program = RandomProgram(random, num_calls).program  # type: ignore[arg-type]
    check(program)
    check(fuse(program, PATTERNS))
