"""What the test of all cases would find: planted defects of an op that is otherwise its reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tools.gpu.op_cases import OpCase, cases_of

from tests.ops.running import near, reference, results, same_bits, with_rows
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import signature
from twostroke.ops.registry import registry
from twostroke.ops.rows.rms_norm import RmsNorm
from twostroke.ops.rows.rms_norm import reference as rms_norm

CASE = next(case for case in cases_of(RmsNorm) if case.operands[0].shape == (7, 64))
Norm = Callable[[F32Array, F32Array, F32Array, float], None]


def planted(change: Callable[[F32Array, F32Array], None]) -> Norm:
    """The reference, followed by a change of its result and its input."""

    def run(out: F32Array, x: F32Array, weight: F32Array, eps: float) -> None:
        rms_norm(out, x, weight, eps)
        change(out, x)

    return run


def writes_past_a_row(out: F32Array, _x: F32Array) -> None:
    np.lib.stride_tricks.as_strided(out, (len(out), out.shape[1] + 1), out.strides)[0, -1] = 0


def changes_its_input(_out: F32Array, x: F32Array) -> None:
    x[-1, -1] += 1


def test_the_reference_itself_has_no_fault() -> None:
    found = results(rms_norm, CASE)
    assert near(CASE, found, reference(CASE)) and same_bits(found, reference(CASE))


@pytest.mark.parametrize(
    ("change", "words"), [(writes_past_a_row, "wrote next to a result"), (changes_its_input, "changed what it reads")]
)
def test_what_lies_next_to_a_result_and_inputs_are_watched(
    change: Callable[[F32Array, F32Array], None], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        results(planted(change), CASE)


def test_a_wrong_number_and_a_neighbour_that_counts_are_seen() -> None:
    def one_number_off(out: F32Array, _x: F32Array) -> None:
        out[3, 5] += 1e-4

    def by_its_neighbours(out: F32Array, x: F32Array) -> None:
        out += np.float32(1e-7) * x.sum()

    assert not near(CASE, results(planted(one_number_off), CASE), reference(CASE))
    run = planted(by_its_neighbours)
    alone = results(run, with_rows(CASE, slice(5, 6)))
    assert not same_bits(alone, [results(run, CASE)[0][5:6]])


@pytest.mark.parametrize("name", [name for name, op in registry().items() if op.CASES])
def test_every_choice_of_a_grid_is_one_that_its_op_knows(name: str) -> None:
    """A name that the op does not read would be a case that is never made."""
    op = registry()[name]
    known = {word for shape in op.SHAPES.values() for word in shape.replace("2", "").split()}
    known |= {field.name for field in signature(op)} | {"bank", "biased", "formats", "kinds", "steps"}
    for grid in op.CASES:
        products = " ".join(each for choices in grid.choices.values() for each in choices if isinstance(each, str))
        sizes = " ".join(getattr(each, "size", "") for choices in grid.choices.values() for each in choices)
        read_by_other = {"P", "R", "L", "G", "E", *products.split(), *sizes.split()}
        assert set(grid.choices) <= known | read_by_other, name


def test_cases_are_the_same_in_every_run() -> None:
    def content(case: OpCase) -> bytes:
        return b"".join(each.tobytes() for each in case.operands if isinstance(each, np.ndarray))

    for first, second in zip(cases_of(RmsNorm, 3, "a"), cases_of(RmsNorm, 3, "a"), strict=True):
        assert first.words == second.words and content(first) == content(second)


def test_each_size_of_a_grid_occurs_in_a_call_with_rows() -> None:
    """A tail of one element was lost in rms_norm, and the calls of a commit had no row of 1 or of 17."""
    for seed in ("a", "b", "c"):
        found = cases_of(RmsNorm, 3, seed, every_value=True)
        shapes = [case.operands[0].shape for case in found]
        assert {rows for rows, _ in shapes} == {0, 1, 7, 33} and len(found) < 12
        assert {width for rows, width in shapes if rows} == {1, 15, 16, 17, 64, 200}
    assert len(cases_of(RmsNorm, 20, "a", every_value=True)) == 20
    assert len(cases_of(RmsNorm, 100, "a", every_value=True)) == 24
