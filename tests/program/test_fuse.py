"""fuse: calls are replaced where their pattern occurs and nowhere else, and bits stay the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.program.programs import EPS, STEP, RandomProgram, memory_of
from tests.tiers import examples
from twostroke.backends.cpu import CpuOps
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gate import gate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.rms_norm import rms_norm
from twostroke.runner.forward import OpByOp

WIDTH = 8
Block = Callable[[Tracer, Value], Value]


def program_with(block: Block) -> Program:
    """A program with an embedding, the block, and a head."""
    trace = Tracer()
    x = block(trace, embed(trace.matrix("embedding", {"wte": 11}, WIDTH), trace.token_ids, trace))
    return trace.program(linear(gather_rows(x, trace.logit_rows), trace.matrix("head", {"head": 11}, WIDTH)))


def product(t: Tracer, x: Value, name: str = "o", rows: int = WIDTH) -> Value:
    return linear(x, t.matrix(name, {name: rows}, x.width))


def normed(t: Tracer, x: Value) -> Value:
    return rms_norm(x, t.vector("norm", WIDTH), EPS)


def names(program: Program) -> list[str]:
    return [call.NAME for call in program.body]


def test_the_patterns_are_found() -> None:
    program = program_with(lambda t, x: add(x, product(t, normed(t, x))))
    assert names(fuse(program, PATTERNS)) == ["embed", "rms_norm", "linear_add"]

    def swiglu(t: Tracer, x: Value) -> Value:
        both = product(t, normed(t, x), "gate_up", 2 * WIDTH)
        return add(x, product(t, gate(both, Activation.SILU), "down"))

    assert names(fuse(program_with(swiglu), PATTERNS)) == ["embed", "rms_norm", "feed_forward"]


def _read_twice(t: Tracer, x: Value) -> Value:
    """Another call reads the product as well."""
    y = product(t, normed(t, x))
    return add(add(x, y), y)


def _not_neighbours(t: Tracer, x: Value) -> Value:
    y = product(t, normed(t, x))
    other = rms_norm(x, t.vector("second", WIDTH), EPS)
    return add(other, y)


def _onto_what_it_reads(t: Tracer, x: Value) -> Value:
    """x + linear(x): as one call, the product would read the value to which it is being added."""
    return add(x, product(t, x))


def _part_of_a_product(t: Tracer, x: Value) -> Value:
    return add(x, product(t, normed(t, x), "wide", 2 * WIDTH).columns(WIDTH, WIDTH))


def _another_activation(t: Tracer, x: Value) -> Value:
    return gate(product(t, x, "gate_up", 2 * WIDTH), Activation.RELU)


BLOCKS: dict[str, Block] = {
    "nothing": lambda t, x: x,
    "norm alone": normed,
    "product alone": product,
    "read twice": _read_twice,
    "not neighbours": _not_neighbours,
    "onto what it reads": _onto_what_it_reads,
    "part of a product": _part_of_a_product,
    "another activation": _another_activation,
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_program_without_the_pattern_is_left_alone(name: str) -> None:
    program = program_with(BLOCKS[name])
    fused = fuse(program, PATTERNS)
    assert fused.calls == program.calls and fused.logits is program.logits


def test_no_pattern_means_no_change() -> None:
    program = program_with(lambda t, x: add(x, product(t, normed(t, x))))
    assert fuse(program, ()).calls == program.calls


def test_the_weights_are_the_same_before_and_after() -> None:
    program = program_with(lambda t, x: add(x, product(t, normed(t, x))))
    fused = fuse(program, PATTERNS)
    assert (fused.weights, fused.vectors, fused.parameters) == (program.weights, program.vectors, program.parameters)


@pytest.fixture(scope="module")
def cpu() -> CpuOps:
    return CpuOps(None, 2)


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 10))
def test_every_program_gives_the_same_bits_fused_or_not(cpu: CpuOps, random: object, num_calls: int) -> None:
    plain = RandomProgram(random, num_calls).program  # type: ignore[arg-type]
    fused = fuse(plain, PATTERNS)
    check(fused)
    for ops in (ReferenceOps(), cpu):
        found = [OpByOp(form, ops, memory_of(form))(STEP).copy() for form in (plain, fused)]
        assert np.array_equal(found[0], found[1], equal_nan=True)
    assert np.array_equal(cpu.compile(fused, memory_of(fused))(STEP), found[1], equal_nan=True)
