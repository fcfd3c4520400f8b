"""bench speculate: its intervals and verdicts, and one short run."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from click.testing import CliRunner

from twostroke import LLM
from twostroke.cli.main import main
from twostroke.lab.bench.never_lose import BoundVerdict, NeverLoseBench, Ratio, interval, never_lose, situations
from twostroke.types.errors import TwostrokeError


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    dice, held = random.Random(1), 0
    for _ in range(2000):
        low, high = interval([dice.lognormvariate(0, 1) for _ in range(9)])
        held += low <= 1.0 <= high
    assert 0.95 <= held / 2000 <= 0.97  # nine values, from the second to the eighth: 96.1%
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.981, 1.2, BoundVerdict.HOLDS), (0.9, 0.979, BoundVerdict.LOSES), (0.97, 1.1, BoundVerdict.OPEN)],
)
def test_a_verdict_goes_by_the_interval(low: float, high: float, verdict: BoundVerdict) -> None:
    assert Ratio(1.0, low, high).verdict is verdict


def test_five_situations_on_spark() -> None:
    """The clocks count calls, so both ways take the same time and every ratio is 1."""
    ticks, asked = itertools.count(), situations(16, 3)
    assert len(asked) == 5 and sum(each.promised for each in asked) == 1
    bench = NeverLoseBench("auto", 3, lambda: float(next(ticks)), lambda: float(next(ticks)))
    noted: list[str] = []
    rows = never_lose(lambda **more: LLM("spark", context=512, threads=1, **more), bench, asked, noted.append)
    assert [row.name for row in rows] == [each.name for each in asked] and len(noted) == 5
    assert all(row.wall == row.processor == Ratio(1.0, 1.0, 1.0) for row in rows)


def test_a_changed_answer_ends_the_measurement() -> None:
    class Liar(NeverLoseBench):
        def _answers(self, llm, asked, way, taken):  # type: ignore[no-untyped-def]
            return [(1 if way == "off" else 2,)]

    with LLM("spark", context=512, threads=1) as llm, pytest.raises(TwostrokeError, match="auto changed an answer"):
        Liar("auto", 2, lambda: 0.0, lambda: 0.0).run(llm, situations(16, 3)[0])


def test_the_command_prints_json_and_refuses_objectives() -> None:
    options = ["--rounds", "2", "--tokens", "8", "--streams", "2", "--context", "512", "--threads", "1"]
    run = CliRunner().invoke(main, ["bench", "speculate", *options, "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["way"] == "auto" and found["bound"] == 0.98
    assert {row["verdict"] for row in found["rows"]} <= {"holds", "loses", "open"} and len(found["rows"]) == 5
    refused = CliRunner().invoke(main, ["bench", "speculate", "--itl", "10ms"])
    assert refused.exit_code == 2 and "--itl is set by the bench itself" in refused.output
