"""int5 and int6: which matrices are int8, how many bits they take, and that every list of names has them."""

from __future__ import annotations

import pytest

from tests.planner.figures import LLAMA2_7B, LLAMA3_70B, spec_of
from twostroke.assembly.settings.option_values import WEIGHTS
from twostroke.distributed.cluster.arithmetic import WHOLE
from twostroke.ops.quant.formats import INT4, INT8, MIXTURES, STORED, WEIGHT_NAMES, WHOLE_NAMES, format_choice
from twostroke.types.spec.formats import COLUMNS8


def test_every_list_of_names_has_all_of_them() -> None:
    assert set(WEIGHTS) == {*WEIGHT_NAMES, STORED}
    assert set(WHOLE) == set(WHOLE_NAMES) == {name for name in WEIGHT_NAMES if name.startswith("int")}


def test_each_fourth_down_projection_of_int5_is_int8() -> None:
    choose = format_choice("int5")
    weights = spec_of(LLAMA3_70B).program.weights
    downs = [choose(weight) for weight in weights if weight.role == "down"]
    assert downs == [INT4, INT4, INT4, INT8] * 20
    assert {choose(weight) for weight in weights if weight.role == "qkv"} == {INT8}
    assert {choose(weight) for weight in weights if weight.role in ("o", "gate_up", "embedding", "head")} == {INT4}


def test_int6_keeps_the_tables_of_the_vocabulary_in_int8() -> None:
    choose = format_choice("int6")
    by_role = {weight.role: choose(weight) for weight in spec_of(LLAMA3_70B).program.weights}
    wide = {role for role, chosen in by_role.items() if chosen == INT8}
    assert wide == {"qkv", "down", "embedding", "head"}
    assert by_role["o"] == by_role["gate_up"] == INT4


@pytest.mark.parametrize(("name", "config", "least", "most"), [
    ("int5", LLAMA3_70B, 4.7, 5.0),
    ("int5", LLAMA2_7B, 5.4, 5.7),  # each head has K and V of its own
    ("int6", LLAMA3_70B, 5.7, 6.1),
])  # fmt: skip
def test_bits_of_all_weights(name: str, config: dict[str, object], least: float, most: float) -> None:
    spec = spec_of(config)
    bits = 8 * spec.weight_bytes(format_choice(name)) / spec.parameters()
    assert least < bits < most


@pytest.mark.parametrize("name", MIXTURES)
def test_matrices_that_int4_rounds_otherwise_are_so_in_mixtures_too(name: str) -> None:
    weight = spec_of(LLAMA3_70B).program.weights[1]
    for role in ("router", "positions", "classes", "keys_up", "values_up", "adapter"):
        other = type(weight)(weight.key, role, weight.rows, weight.columns, weight.parts)
        assert format_choice(name)(other) == format_choice("int4")(other) != INT4
    adapters = type(weight)(weight.key, "adapter", 8, weight.columns, weight.parts)
    assert format_choice(name)(adapters) == COLUMNS8
