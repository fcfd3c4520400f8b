"""`simulate --policy objectives`: the simulated engines keep the objectives that a server with the same flags keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from twostroke.cli.main import main

LOAD = ["--workload", "overload", "--requests", "300", "--hardware", "l4", "--ttft", "40ms"]


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *LOAD, "--itl", "20ms", *words])


def figures(*words: str) -> dict[str, Any]:
    found = simulate(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.output)["figures"]  # type: ignore[no-any-return]


@pytest.mark.daily
@pytest.mark.parametrize("rate", ["200", "400", "800"])
def test_objectives_serve_more_in_time_and_keep_what_is_accepted(rate: str) -> None:
    """A burst takes all 64 places before any answer has ended. So promises depend on the time at which places become
    free."""
    arrival, objectives = figures("--rate", rate), figures("--rate", rate, "--policy", "objectives")
    assert not any("refused" in reason for reason in arrival["errors"])
    assert sum(count for reason, count in objectives["errors"].items() if "refused" in reason) > 10
    assert objectives["requests"] == 300 == objectives["completed"] + sum(objectives["errors"].values())
    assert objectives["good"] > arrival["good"]
    assert objectives["good"] >= 0.9 * objectives["completed"]


@pytest.mark.daily
@pytest.mark.slow
def test_split_pools_keep_objectives_too() -> None:
    split = ("--replicas", "1", "--decoders", "1", "--rate", "6000")
    arrival, objectives = figures(*split), figures(*split, "--policy", "objectives")
    assert sum(count for reason, count in objectives["errors"].items() if "refused" in reason) > 10
    assert objectives["requests"] == 300 == objectives["completed"] + sum(objectives["errors"].values())
    assert objectives["good"] > arrival["good"]


def test_a_policy_without_objectives_is_one_clear_error() -> None:
    none = CliRunner().invoke(main, ["simulate", "--hardware", "l4", "--rate", "1", "--policy", "objectives"])
    assert none.exit_code == 2 and "--ttft or --itl" in none.output
