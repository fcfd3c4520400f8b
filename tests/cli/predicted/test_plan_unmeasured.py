"""`plan` and `simulate` where this machine cannot be measured: they answer by a guess and tell the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from twostroke.cli.main import main
from twostroke.lab.planner.doctor.examine import machine_busy
from twostroke.lab.planner.doctor.machine import ThisMachine
from twostroke.types.errors import Contradiction, OutOfMemory, TwostrokeError

COMMAND = "twostroke doctor --fresh"
REASONS: dict[str, tuple[TwostrokeError, str]] = {
    "busy": (machine_busy(0.7), "Other programs took 70% of its cores"),
    "contradiction": (Contradiction("The figures contradict each other.", why="a exceeds b."), "a exceeds b."),
    "memory": (OutOfMemory("Measuring takes 1.1 GB; 0.4 GB are available."), "0.4 GB are available"),
}


def unmeasurable(monkeypatch: pytest.MonkeyPatch, folder: Path, error: TwostrokeError) -> None:
    """No calibration is kept, and measuring ends with this error."""

    def how(patient: Any, clock: Any, note: Any) -> Any:
        note(1, 2, "a part")
        raise error

    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(ThisMachine.kept_or_measured, "__defaults__", (how,))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


# This is one test and not a grid of three, because quick runs of this folder keep one case of each grid.
def test_a_plan_follows_from_a_guess_and_names_it_and_the_command_that_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, reason in REASONS.values():
        unmeasurable(monkeypatch, tmp_path, error)
        told = run("plan")
        assert told.exit_code == 0, told.output
        for text in (told.stdout, told.stderr):
            assert "all its times follow from a guess" in text and reason in text and COMMAND in text
        assert "this machine, not measured" in told.stdout
        assert told.stderr.count("warning: ") == 1
        found = json.loads(run("plan", "--json").stdout)
        assert found["hardware"]["title"] == "this machine, not measured" and found["decode_one"]["seconds"] > 0
        assert any(COMMAND in each and reason in each for each in found["assumptions"])
    assert not list(tmp_path.rglob("doctor/*")), "a guess is never kept as a measurement"


def test_a_divided_plan_guesses_the_exchange_too_and_takes_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmeasurable(monkeypatch, tmp_path, machine_busy(0.7))
    told = run("plan", "--pipeline-parallel", "2")
    assert told.exit_code == 0, told.output
    assert "each on 1/2 of this machine, not measured" in told.stdout
    assert f"time and rate as a guess, not measured; `{COMMAND}` measures it" in told.stdout
    asked = run("plan", "--pipeline-parallel", "2", "--exchange-time", "40us").stdout
    assert "time as asked for; rate as a guess" in asked and "a meeting takes 40 us" in asked


def test_a_simulation_runs_by_the_guess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmeasurable(monkeypatch, tmp_path, machine_busy(0.7))
    told = run("simulate", "--workload", "steady-chat", "--rate", "1", "--duration", "5s", "--kv-memory", "8MB")
    assert told.exit_code == 0, told.output
    assert "this machine, not measured" in told.stdout and COMMAND in told.stderr
