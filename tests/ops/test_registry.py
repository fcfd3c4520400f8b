"""An op that lacks a reference, a cost, a shape, native operands or cases fails here."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable

import numpy as np
import pytest

from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.backends.cpu.library import load_library, native_signature, op_numbers
from twostroke.ops.program.op import Op, OperandKind, axes, signature
from twostroke.ops.registry import registry
from twostroke.types.errors import BackendError

SHAPED = (OperandKind.VALUE, OperandKind.WEIGHT, OperandKind.VECTOR, OperandKind.INDICES)


def test_the_instruction_set_holds_what_models_are_made_of() -> None:
    assert len(registry()) >= 13 and {"linear", "attention", "kv_write"} <= set(registry())


def named_by_first_line(reference: Callable[..., None]) -> list[str]:
    """The names into which a reference takes its call apart."""
    function = ast.parse(inspect.getsource(reference)).body[0]
    assert isinstance(function, ast.FunctionDef)
    first = next(each for each in function.body if isinstance(each, ast.Assign))
    assert isinstance(first.value, ast.Name) and first.value.id == "call"
    (target,) = first.targets
    assert isinstance(target, ast.Tuple)
    return [ast.unparse(each) for each in target.elts]


@pytest.mark.parametrize("name", registry())
def test_every_op_is_complete(name: str) -> None:
    module, op = importlib.import_module(registry()[name].__module__), registry()[name]
    fields = [operand.name for operand in signature(op)]
    arguments = list(inspect.signature(module.reference).parameters)
    if arguments == ["call"]:  # many operands, which its first line names
        arguments = named_by_first_line(module.reference)
    # An op in place calls the array that it changes `x`, or `out` where that is its result.
    assert [("out" if fields[i] == "out" else each) for i, each in enumerate(arguments)] == fields
    assert op.cost is not Op.cost and op.cost.__doc__
    for operand in signature(op):
        if operand.kind in SHAPED:
            assert axes(op.SHAPES[operand.name])
    assert set(op.SHAPES) <= set(fields)


@pytest.mark.parametrize("level", available_levels())
def test_the_library_knows_every_op_with_the_same_operands(level: str) -> None:
    library, numbers = load_library(level), op_numbers(level)
    assert set(numbers) == set(registry())
    for name, number in numbers.items():
        assert library.ts_op_signature(number).decode() == native_signature(registry()[name])
    assert library.ts_op_signature(len(numbers)) is None and library.ts_op_signature(-1) is None


def test_an_op_whose_operands_differ_is_refused_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    level = available_levels()[0]
    op_numbers.cache_clear()
    monkeypatch.setattr("twostroke.backends.cpu.library.native_signature", lambda op: op.NAME + ": value other;")
    numbers = op_numbers(level)
    with pytest.raises(BackendError, match="disagree on the operands of rms_norm"):
        numbers["rms_norm"]
    op_numbers.cache_clear()


@pytest.mark.parametrize("name", registry())
def test_every_op_has_cases(name: str) -> None:
    """test_cases_native.py runs them. Ops that exchange with other ranks have tests of their own in
    test_ranks_native.py."""
    meets_ranks = registry()[name].__module__.startswith("twostroke.ops.ranks.")
    assert bool(registry()[name].CASES) != meets_ranks


@pytest.mark.parametrize("rows", [0, 1])
def test_steps_without_rows_are_not_an_error(rows: int) -> None:
    ops = CpuOps(None, 1)
    empty = np.ones((rows, 8), np.float32)
    ops.rms_norm(empty, empty, np.ones(8, np.float32), 1e-5)
    ops.head_norm(np.ones((rows, 2, 4), np.float32), np.ones(4, np.float32), 1e-5)
    ops.gather_rows(np.empty((rows, 8), np.float32), np.ones((3, 8), np.float32), np.zeros(rows, np.int32))
    ops.close()
