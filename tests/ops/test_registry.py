"""An op that lacks a reference, a cost, a native function, a meter or a test fails here."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.library import _SIGNATURES
from twostroke.backends.meter import MeterOps
from twostroke.ops.protocol import OP_NAMES, Ops
from twostroke.ops.reference import ReferenceOps

FOLDER = Path(__file__).parent


def arguments(owner: type, name: str) -> list[str]:
    return [parameter for parameter in inspect.signature(getattr(owner, name)).parameters if parameter != "self"]


def test_the_instruction_set_is_what_it_was() -> None:
    assert len(OP_NAMES) >= 10 and {"linear", "attention", "kv_write"} <= set(OP_NAMES)


@pytest.mark.parametrize("name", OP_NAMES)
def test_every_op_is_complete(name: str) -> None:
    module = importlib.import_module(f"twostroke.ops.{name}")
    asked = arguments(Ops, name)
    assert list(inspect.signature(module.reference).parameters) == asked
    assert list(inspect.signature(module.cost).parameters) == asked
    assert all(arguments(owner, name) == asked for owner in (ReferenceOps, CpuOps, MeterOps))
    assert f"ts_{name}" in _SIGNATURES


def called_attributes() -> set[str]:
    found: set[str] = set()
    for path in FOLDER.glob("test_*_native.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found.add(node.func.attr)
    return found | ({"linear"} if "linear" in (FOLDER / "native.py").read_text() else set())


@pytest.mark.parametrize("name", OP_NAMES)
def test_every_op_has_a_grid_test(name: str) -> None:
    assert name in called_attributes()


@pytest.mark.parametrize("rows", [0, 1])
def test_steps_without_rows_are_not_an_error(rows: int) -> None:
    ops = CpuOps(None, 1)
    empty = np.ones((rows, 8), np.float32)
    ops.rms_norm(empty, empty, np.ones(8, np.float32), 1e-5)
    ops.head_norm(np.ones((rows, 2, 4), np.float32), np.ones(4, np.float32), 1e-5)
    ops.gather_rows(np.empty((rows, 8), np.float32), np.ones((3, 8), np.float32), np.zeros(rows, np.int32))
    ops.close()
