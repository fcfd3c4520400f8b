"""`twostroke bench ranks` on real processes: both sides are measured, and the exchange between them is counted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twostroke import LLM
from twostroke.assembly.settings.env import process_environment
from twostroke.lab.bench.divided import DividedBench, table
from twostroke.lab.bench.phases import PhasesAsked

SMALL = {"threads": "1", "kv_memory": "64MiB", "context": "64"}
COMMAND = [sys.executable, "-P", "-m", "twostroke", "bench", "ranks", "spark", "--json"]
SOURCE = Path(__file__).parents[2] / "src"


def test_both_sides_are_measured_in_turn_and_the_exchange_is_counted() -> None:
    notes: list[str] = []
    with LLM("spark", **SMALL) as whole, LLM("spark", **SMALL, pipeline_parallel="2") as divided:
        found = DividedBench(whole, divided, time.perf_counter).run(PhasesAsked((16,), (1,), 16, 3, 2), notes.append)
        assert whole.exchanged.calls == 0 < divided.exchanged.calls and divided.exchanged.sent_bytes == 0  # it receives
    assert [(each.phase, each.streams, each.tokens) for each in found] == [("prefill", 1, 16), ("decode", 1, 16)]
    assert len(notes) == 6 and len(table(found)) == 3
    for each in found:
        assert 0 < each.least_ratio <= each.ratio <= each.most_ratio
        assert 0 < each.exchange_share < 1 and 0 < each.waited_share <= 1


def test_the_command_has_a_ratio_for_each_case() -> None:
    asked = [*COMMAND, "--kv-memory", "64MiB", "--prompts", "16", "--batches", "1", "--rounds", "1", "--new", "3"]
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(said.stdout)
    assert (found["way"], found["processes"], found["threads"]) == ("tensor", 2, 1)
    for case in found["cases"]:
        assert case["ratio"] == pytest.approx(case["divided"] / case["whole"])
        assert case["good"] == (case["ratio"] >= found["goal"])


def test_processes_that_would_share_a_core_are_refused() -> None:
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    said = subprocess.run([*COMMAND, "--threads", "4096"], env=environment, capture_output=True, text=True, timeout=120)
    assert said.returncode != 0 and "need 8192 cores" in said.stderr
