"""Predictions next to measurements: the predicted steps, quiet rounds, the table."""

from __future__ import annotations

import time

import pytest

from tests.cost.machines import calibration
from twostroke.assembly.settings.env import Moment
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.lab.bench.phases import PhasesAsked
from twostroke.lab.bench.predict import TRIES, Comparison, _quiet_round, compare, predicted_steps, table
from twostroke.lab.planner.model_config import read_model
from twostroke.llm import LLM
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import weight_format
from twostroke.types.spec.formats import KVKind

INT8 = weight_format("int8")
COST = step_cost(work_of(read_model("spark").spec, "int8", KVKind.BF16), calibration())


def test_a_prompt_is_predicted_in_the_steps_that_it_takes() -> None:
    parts = predicted_steps(COST, ("prefill", 1, 1100), 512, 32)
    steps = [Segment.prefill(0, 512, False), Segment.prefill(512, 512, False), Segment.prefill(1024, 76, True)]
    assert sum(parts.values()) == pytest.approx(sum(COST.predict([step]).seconds for step in steps))
    whole = predicted_steps(COST, ("prefill", 1, 512), 512, 32)
    assert sum(whole.values()) == pytest.approx(COST.predict([Segment.prefill(0, 512, True)]).seconds)


def test_decode_is_predicted_in_the_middle_of_the_answers() -> None:
    parts = predicted_steps(COST, ("decode", 4, 512), 512, 32)
    assert sum(parts.values()) == pytest.approx(COST.predict([Segment.decode(528)] * 4).seconds)
    assert set(parts) == {"weights", "head", "attention", "other", "host"}


@pytest.mark.daily
@pytest.mark.slow
def test_every_case_is_predicted_and_measured() -> None:
    asked = PhasesAsked(prompt_lengths=(16, 40), batches=(1, 2), context=24, new_tokens=4, rounds=2)
    with LLM("spark", weights="int8", cache="off", context=64, kv_memory="8MB") as llm:
        found = compare(llm, calibration(), asked, time.perf_counter, lambda line: None)
    assert [(each.phase, each.streams, each.tokens) for each in found] == [
        *(("prefill", 1, 16), ("prefill", 1, 40), ("decode", 1, 24), ("decode", 2, 24))
    ]
    for each in found:
        assert each.slowest <= each.measured <= each.fastest and each.predicted > 0
        assert each.ratio == each.predicted / each.measured and each.weights == "int8"
        assert 0 <= each.others_share <= 1


@pytest.mark.parametrize(
    ("shares", "chosen"), [([0.0], 100.0), ([0.5, 0.02], 200.0), ([0.5, 0.4, 0.2, 0.3, 0.0], 300.0)]
)
def test_a_disturbed_round_is_tried_again(shares: list[float], chosen: float) -> None:
    """Each round is one call of one second on one core, of which other programs take a part."""
    now, busy, made = [0.0], [0.0], [0]

    def speed() -> float:
        busy[0] += shares[made[0]]
        made[0] += 1
        now[0] += 1
        return 100.0 * made[0]

    found = _quiet_round(speed, lambda: now[0], lambda: Moment(now[0], busy[0], 0.0, 1))
    assert found.tokens_per_s == chosen and made[0] == min(len(shares), TRIES)


def test_the_table_marks_what_is_off() -> None:
    good = Comparison("int8", "decode", 1, 512, 110.0, 100.0, 90.0, 105.0, 0.0, {})
    bad = Comparison("int8", "prefill", 1, 512, 80.0, 100.0, 90.0, 105.0, 0.5, {})
    lines = table([good, bad])
    assert "1.10" in lines[1] and "off by" not in lines[1]
    assert "off by more than 15%" in lines[2] and "50% of the cores" in lines[2]
    assert lines[-1] == "1 of 2 within 15%"
