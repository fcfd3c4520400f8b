"""Every op at every level on the cases of its own file. It must equal the reference, and have the same bits with one
thread or two, for a row alone, for a sequence alone, and however it is cut into steps. Wrong shapes are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tools.gpu.op_cases import OpCase, cases_of

from tests.ops.native import LEVELS, Answers
from tests.ops.running import batch_of, near, part_of, reference, results, row_axis, same_bits, with_rows
from tests.tiers import TIER, fewer
from twostroke.backends.cpu import CpuOps
from twostroke.ops.program.op import Op, OperandKind, axes, signature
from twostroke.ops.registry import registry
from twostroke.types.errors import BackendError


def kinds_of(op: type[Op]) -> set[OperandKind]:
    return {field.kind for field in signature(op)}


TESTED = [name for name, op in registry().items() if op.CASES]
ALONE = (0, 1, 5, 17, 32, 69)
"""The rows that are also computed alone, as far as a case has them."""
CUTS = (1, 1, 3, 16)
"""The rows of the first steps of a sequence that is cut. One more step has the rest."""
SHAPED = (OperandKind.VALUE, OperandKind.VECTOR, OperandKind.INDICES)


def cases(name: str) -> list[OpCase]:
    """Enough cases of each grid for a run. Each size and number of the grid is among them, unless the run is quick."""
    op, few = registry()[name], TIER.quick or not Answers.checked
    most = max(1, (fewer(24, 6) if Answers.checked else 6) // len(op.CASES))
    return cases_of(op, most, f"{TIER.seed}", every_value=not few)


@pytest.fixture(scope="module", params=LEVELS)
def pools(request: pytest.FixtureRequest) -> Iterator[tuple[CpuOps, CpuOps]]:
    """One thread, and two."""
    with closing(CpuOps(str(request.param), 1)) as one, closing(CpuOps(str(request.param), 2)) as two:
        yield one, two


@pytest.mark.parametrize("name", TESTED)
def test_it_is_the_reference_and_a_row_is_as_alone(pools: tuple[CpuOps, CpuOps], name: str) -> None:
    one, two = (getattr(pool, name) for pool in pools)
    for case in cases(name):
        found = results(two, case)
        if Answers.checked and found[0].size:
            assert near(case, found, reference(case)), case.words
        assert same_bits(results(one, case), found), f"another number of threads: {case.words}"
        for place, part in parts(case):
            assert same_bits(results(one, part)[:1], [found[0][place]]), f"rows {place} alone: {case.words}"


def parts(case: OpCase) -> Iterator[tuple[slice, OpCase]]:
    """Some rows of a case, each computed alone, and sequences, each alone."""
    batch, fields = batch_of(case), {field.name for field in signature(registry()[case.op])}
    if not row_axis(case):
        return
    if batch is None:
        yield from ((row, with_rows(case, row)) for row in rows_of(len(case.operands[0])))
        return
    states, sees_later = "state" in fields, bool({"ends", "by_key"} & fields) or ahead(case)
    for s, (begin, end) in enumerate(itertools.pairwise(batch.row_starts.tolist())):
        count, slots = end - begin, slice(s, s + 1)
        if count:
            yield slice(begin, end), with_rows(case, slice(begin, end), part_of(batch, s, 0, count), slots)
        if not states and not sees_later:
            for row in rows_of(count):
                one = slice(begin + row.start, begin + row.stop)
                yield one, with_rows(case, one, part_of(batch, s, row.start, row.stop))


def rows_of(count: int) -> list[slice]:
    return [slice(row, row + 1) for row in ALONE if row < count]


def ahead(case: OpCase) -> bool:
    fields = [field.name for field in signature(registry()[case.op])]
    return "ahead" in fields and case.operands[fields.index("ahead")] != 0


@pytest.mark.parametrize("name", [name for name in TESTED if OperandKind.STATE in kinds_of(registry()[name])])
def test_a_sequence_has_the_same_bits_however_it_is_cut(pools: tuple[CpuOps, CpuOps], name: str) -> None:
    run = getattr(pools[0], name)
    state = [field.name for field in signature(registry()[name])].index("state")
    for case in cases(name):
        batch, (out, kept) = batch_of(case), results(run, case)
        assert batch is not None
        count, slots = int(batch.row_starts[1]), case.operands[state + 1]
        unused = [slot for slot in range(len(kept)) if slot not in slots]
        assert np.array_equal(kept[unused], case.operands[state][unused]), case.words
        done, states = 0, case.operands[state]
        for end in (*itertools.accumulate(CUTS), count):
            part = with_rows(case, slice(done, end), part_of(batch, 0, done, end), slice(0, 1))
            step = replace(part, operands=(*part.operands[:state], states, *part.operands[state + 1 :]))
            made, states = results(run, step)
            assert same_bits([made], [out[done:end]]), f"rows {done} to {end}: {case.words}"
            done = end
        assert same_bits([states[slots[0]]], [kept[slots[0]]]), case.words


@pytest.mark.parametrize("name", TESTED)
def test_operands_of_another_shape_are_refused_and_nothing_is_written(
    pools: tuple[CpuOps, CpuOps], name: str
) -> None:
    op, run = registry()[name], getattr(pools[1], name)
    case = next(each for each in cases(name) if row_axis(each) or not np.isscalar(each.operands[0]))
    for place, field in enumerate(signature(op)):
        if not is_bound(case, field.name):
            continue
        item: Any = case.operands[place]
        wide = np.zeros((*item.shape[:-1], item.shape[-1] + 1), item.dtype)
        operands = [each.copy() if isinstance(each, np.ndarray) else each for each in case.operands]
        operands[place] = wide
        before = [each.copy() for each in operands if isinstance(each, np.ndarray)]
        with pytest.raises(BackendError, match=f"{name}: {field.name} must be|{name}: .* must be|{name} was refused"):
            run(*operands)
        after = [each for each in operands if isinstance(each, np.ndarray)]
        assert all(np.array_equal(a, b, equal_nan=a.dtype == np.float32) for a, b in zip(before, after, strict=True))


def is_bound(case: OpCase, name: str) -> bool:
    """Whether the last axis of an array also occurs in another operand of the case."""
    op = registry()[case.op]
    pairs = zip(signature(op), case.operands, strict=True)
    given = {field.name: field.kind for field, item in pairs if item is not None}
    if given.get(name) not in SHAPED:
        return False
    last = axes(op.SHAPES[name])[-1].name
    others = [axis.name for other in given if other != name for axis in axes(op.SHAPES.get(other, ""))]
    return last not in ("", "*") and last in others
