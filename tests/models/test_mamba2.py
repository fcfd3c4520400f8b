"""Mamba-2: a cost that does not grow with the context, and configs that are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cost.machines import calibration
from tests.models.published.states import MAMBA2 as PUBLISHED
from twostroke.cli.main import main
from twostroke.cost.calibration import Calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.types.errors import CorruptModel
from twostroke.types.plan import Role
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_guess import guessed_cpu

SMALLEST = PUBLISHED["state-spaces/mamba2-130m"][0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_position_has_k_or_v(name: str) -> None:
    model = read_model(PUBLISHED[name][0])
    assert model.paged_kinds == () and model.kv_bytes_per_token(KVKind.F32) == 0


@pytest.mark.parametrize("machine", [calibration(), guessed_cpu(4, "avx512")], ids=["measured", "guessed"])
def test_a_step_costs_the_same_at_any_length(machine: Calibration | HardwareSpec) -> None:
    table = work_of(read_model(PUBLISHED["state-spaces/mamba2-1.3b"][0]), "int8", KVKind.BF16)
    cost = step_cost(table, machine)

    def decode(start: int, sequences: int = 1) -> float:
        return cost.predict([Segment(start, 1, True, Role.DECODE)] * sequences).seconds

    assert decode(32_768) == decode(512) > 0
    assert cost.predict([Segment(9000, 100, False, Role.PREFILL)]) == cost.predict(
        [Segment(0, 100, False, Role.PREFILL)]
    )
    assert list(cost.decode_run([5, 900], 3)) == [decode(1, 2)] * 3
    # The states of each sequence are read and written.
    one, two = (cost.predict([Segment(9, 1, True, Role.DECODE)] * count).work for count in (1, 2))
    states = 2 * read_model(PUBLISHED["state-spaces/mamba2-1.3b"][0]).state_bytes()
    assert two.kv_bytes - one.kv_bytes == one.kv_bytes == states


def test_plan_says_that_states_are_constant(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["state-spaces/mamba2-2.7b"][0]))
    found = {}
    for context in ("2048", "32768"):
        words = ["plan", str(tmp_path), "--hardware", "h100-sxm", "--context", context, "--concurrency", "4"]
        told = CliRunner().invoke(main, words)
        assert told.exit_code == 0, told.output
        assert "constant, whatever its length" in told.output and "K and V a token" not in told.output
        found[context] = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["memory"]
    assert found["2048"]["state_bytes"] == found["32768"]["state_bytes"] == 171_900_928
    assert found["2048"]["kv_bytes_per_sequence"] == found["32768"]["kv_bytes_per_sequence"] == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_heads": 23}, "num_heads"),
        ({"n_groups": 5}, "n_groups"),
        ({"conv_kernel": 1}, "conv_kernel"),
        ({"time_step_limit": [0.5, 0.1]}, "time_step_limit"),
        ({"time_step_limit": [0.0]}, "time_step_limit"),
        ({"time_step_limit": [-1.0, 1.0]}, "time_step_limit"),
        ({"time_step_limit": [0.0, "much"]}, "time_step_limit"),
        ({"state_size": 0}, "state_size"),
    ],
)
def test_impossible_fields_are_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CorruptModel, match=field):
        read_model({**SMALLEST, **changes})


def test_both_spellings_of_no_bound_are_read() -> None:
    for bound in (math.inf, {"__float__": "Infinity"}):
        (scan,) = {
            (call.dt_least, call.dt_most)
            for call in read_model({**SMALLEST, "time_step_limit": [0.0, bound]}).plain.calls
            if call.NAME == "ssd_scan"
        }
        assert scan == (0.0, math.inf)
