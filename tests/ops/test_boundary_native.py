"""Native code checks the sizes of each call by itself, at every level. Python compares shapes before it makes a call; a
compiled program changes sizes from step to step, and then native code is the only check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tools.gpu.op_cases import OpCase, cases_of

from tests.ops.native import LEVELS
from tests.ops.running import placed
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.library import run_words
from twostroke.backends.cpu.words import WORDS, call_words
from twostroke.ops.program.op import OperandKind, axes, signature
from twostroke.ops.registry import registry

SIZE_WORDS = {OperandKind.VALUE: (2, 3, 4), OperandKind.VECTOR: (1,), OperandKind.INDICES: (1,)}
"""The words of an operand that hold the sizes of its axes. A value (T, D) has one head, and its width is the last
word."""
TESTED = [name for name, op in registry().items() if op.CASES]


@dataclass(frozen=True)
class Size:
    """A size of an operand that another operand of the call also has, and the word that holds it."""

    operand: str
    axis: str
    word: int


def sizes_of(case: OpCase) -> Iterator[Size]:
    op, at = registry()[case.op], 0
    shapes = {
        field.name: [axis.name for axis in axes(op.SHAPES[field.name])]
        for field, item in zip(signature(op), case.operands, strict=True)
        if field.name in op.SHAPES and item is not None
    }
    for field in signature(op):
        words = SIZE_WORDS.get(field.kind, ())
        names = shapes.get(field.name, []) if words else []
        words = words if len(names) == len(words) else (words[0], words[-1]) if names else ()
        others = [name for other, each in shapes.items() if other != field.name for name in each]
        for axis, word in zip(names, words, strict=True):
            if axis not in ("", "*") and axis in others:
                yield Size(field.name, axis, at + word)
        at += WORDS[field.kind]


def with_room(item: Any, kind: OperandKind) -> Any:
    """The operand in memory that has one more row, column or number, so that a call with a wrong size harms nothing."""
    if item is None or kind not in SIZE_WORDS:
        return item
    if kind is OperandKind.VALUE:
        return placed(item, np.float32(0))[0]
    return np.append(item, item[-1:])[: len(item)]


@pytest.fixture(scope="module", params=LEVELS)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    with closing(CpuOps(str(request.param), 1)) as made:
        yield made


@pytest.mark.parametrize("name", TESTED)
def test_one_more_is_refused(ops: CpuOps, name: str) -> None:
    op = registry()[name]
    case = max(cases_of(op, 6), key=lambda each: getattr(each.operands[0], "size", 0))
    operands = tuple(with_room(item, field.kind) for field, item in zip(signature(op), case.operands, strict=True))
    words = [ops.numbers[name], *call_words(op, operands, ops.structs)]

    def status(changed: list[int]) -> int:
        given = np.array(changed, np.int64)
        return int(run_words(ops._library, ops._context, given.ctypes.data, len(given))[0])

    assert status(words) == 0
    for size in sizes_of(case):
        wrong = list(words)
        wrong[1 + size.word] += 1
        assert status(wrong) != 0, f"{size.operand} has one more of {size.axis}"
