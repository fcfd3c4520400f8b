"""--ttft and --itl: how they are read, what they change, which ones cannot be met, and the cost model that follows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.cost.machines import calibration
from twostroke.assembly.cost_here import check_objectives, costs_here
from twostroke.assembly.find import find_model, resolve_all
from twostroke.assembly.settings.config import step_rule
from twostroke.assembly.settings.option_values import parse_seconds
from twostroke.assembly.settings.resolver import collect
from twostroke.cost.shape import Segment
from twostroke.cost.what_if import WhatIf
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.errors import ConfigError
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware_guess import OPERATIONS
from twostroke.weights.hub.hub import EMBEDDED


@pytest.mark.parametrize(("text", "value"), [("1s", 1.0), ("50ms", 0.05), ("0.25", 0.25), (" 2 S ", 2.0), ("1h", 0)])
def test_times(text: str, value: float) -> None:
    if value:
        assert parse_seconds(text) == pytest.approx(value)
        return
    with pytest.raises(ValueError, match="50ms"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["0", "0ms", "-1s", "3601s", "", "ms", "1 minute"])
def test_a_time_that_cannot_be_is_one_clear_error(text: str) -> None:
    with pytest.raises(ConfigError, match="--itl has the value"):
        collect({"itl": text}, {})


def test_without_objectives_nothing_changes_and_with_them_the_budget_is_only_a_cap() -> None:
    plain = resolve_all(EMBEDDED, {})
    assert plain["max_step_tokens"] == 512 and not plain.steps.objectives.any
    kept = resolve_all(EMBEDDED, {"ttft": "1s", "itl": "500ms"})
    reasons = {setting.name: setting.reason for setting in kept.settings}
    assert kept.steps.objectives == LatencyObjectives(1.0, 0.5)
    assert kept["max_step_tokens"] == 2048 and "sized by the objectives" in reasons["max_step_tokens"]
    assert kept["step_cost"] in ("measured", "guessed") and "doctor" in reasons["step_cost"]
    assert resolve_all(EMBEDDED, {"ttft": "1s", "max_step_tokens": "300"})["max_step_tokens"] == 300


def test_the_limiter_of_steps_has_a_name_and_its_rule_is_shown() -> None:
    plain = resolve_all(EMBEDDED, {})
    reasons = {setting.name: setting.reason for setting in plain.settings}
    assert plain["step_limiter"] == "GapLimiter" and "250 ms, or 8 decode steps" in reasons["step_limiter"]
    assert "8 decode steps" in step_rule(plain.steps)
    static = resolve_all(EMBEDDED, {"max_step_tokens": "128"})
    assert static["step_limiter"] == "none" and not step_rule(static.steps)
    kept = resolve_all(EMBEDDED, {"itl": "500ms"})
    assert kept["step_limiter"] == "ItlLimiter" and "500ms" in step_rule(kept.steps)


@pytest.mark.parametrize("level", OPERATIONS)
def test_where_nothing_was_measured_a_guess_serves_and_says_so(level: str, tmp_path: Path) -> None:
    spec = find_model(EMBEDDED, {}).spec
    here = costs_here(spec, "int8", KVKind.BF16, tmp_path, level, 2)
    assert not here.measured and "twostroke doctor" in here.source
    one, many = (here.now.predict([Segment.prefill(0, rows, True)]).seconds for rows in (1, 500))
    assert 0 < one < many < 60
    assert not list(tmp_path.iterdir()), "nothing is measured or written at start"
    check_objectives(here, LatencyObjectives(1e-6, 1e-6))  # a guess refuses nothing


def test_an_objective_that_cannot_be_met_at_all_is_refused_with_the_figure() -> None:
    measured = WhatIf(partial(work_of, find_model(EMBEDDED, {}).spec), FORMATS, "int8", KVKind.BF16, calibration())
    with pytest.raises(ConfigError, match=r"--itl 0\.001ms cannot be met") as caught:
        check_objectives(measured, LatencyObjectives(1.0, 1e-6))
    assert "Ask for more than" in caught.value.fix
    with pytest.raises(ConfigError, match="--ttft"):
        check_objectives(measured, LatencyObjectives(1e-6, None))
    check_objectives(measured, LatencyObjectives(10.0, 10.0))
