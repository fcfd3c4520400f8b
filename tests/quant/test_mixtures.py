"""int6, and int5, which is int4 with some matrices in int6: which matrices these are, how many bits both take, and that
every list of names follows from one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planner.figures import LLAMA2_7B, LLAMA3_70B, spec_of
from twostroke.assembly.settings.option_values import WEIGHTS
from twostroke.ops.quant import formats
from twostroke.ops.quant.formats import INT4, INT6, INT8, STORED, WEIGHT_NAMES, WHOLE_NAMES, format_choice
from twostroke.types.spec.formats import COLUMNS8, F32

SOURCES = Path(formats.__file__).parents[2]


def test_every_list_of_names_has_all_of_them() -> None:
    assert set(WEIGHT_NAMES) == {*formats.FORMATS, *formats.MIXTURES} and WEIGHTS == (*WEIGHT_NAMES, STORED)
    assert set(WHOLE_NAMES) == set(WEIGHT_NAMES) - {"f32", "bf16"}


def test_no_other_file_lists_the_names() -> None:
    """A new format is one line: what lists the names takes them from `formats.py`."""
    listed = re.compile(r"int[56]\b\W{1,9}int[4-8]\b")
    assert [path for path in SOURCES.rglob("*.py") if listed.search(path.read_text())] == []


def test_int5_has_six_bits_where_they_count_most() -> None:
    choose = format_choice("int5")
    by_role = {weight.role: choose(weight) for weight in spec_of(LLAMA3_70B).program.weights}
    assert {role for role, chosen in by_role.items() if chosen == INT6} == {"qkv", "down"}
    assert {chosen for role, chosen in by_role.items() if role not in ("qkv", "down")} == {INT4}


def test_all_matrices_of_int6_have_six_bits() -> None:
    choose = format_choice("int6")
    assert {choose(weight) for weight in spec_of(LLAMA3_70B).program.weights} == {INT6}


@pytest.mark.parametrize(("name", "config", "least", "most"), [
    ("int5", LLAMA3_70B, 5.0, 5.2),
    ("int5", LLAMA2_7B, 5.1, 5.4),  # each head has K and V of its own
    ("int6", LLAMA3_70B, 6.5, 6.6),
])  # fmt: skip
def test_bits_of_all_weights(name: str, config: dict[str, object], least: float, most: float) -> None:
    spec = spec_of(config)
    bits = 8 * spec.weight_bytes(format_choice(name)) / spec.parameters()
    assert least < bits < most


@pytest.mark.parametrize("name", ["int6", "int5"])
def test_matrices_that_int4_rounds_otherwise_are_so_here_too(name: str) -> None:
    weight = spec_of(LLAMA3_70B).program.weights[1]
    expected = {"router": F32, "positions": F32, "classes": F32, "keys_up": INT8, "values_up": INT8}
    for role, chosen in expected.items():
        other = type(weight)(weight.key, role, weight.rows, weight.columns, weight.parts)
        assert format_choice(name)(other) == format_choice("int4")(other) == chosen
    adapters = type(weight)(weight.key, "adapter", 8, weight.columns, weight.parts)
    assert format_choice(name)(adapters) == COLUMNS8
