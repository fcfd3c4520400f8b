"""`simulate --policy objectives`: the simulated engines keep what a server with the same flags keeps."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from twostroke.cli.main import main

LOAD = ["--workload", "overload", "--rate", "800", "--requests", "300", "--hardware", "l4", "--ttft", "40ms"]


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *LOAD, "--itl", "20ms", *words])


def figures(*words: str) -> dict[str, Any]:
    found = simulate(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.output)["figures"]  # type: ignore[no-any-return]


def test_objectives_are_kept_by_refusing_and_all_are_accounted_for() -> None:
    arrival, objectives = figures(), figures("--policy", "objectives")
    assert not any("refused" in reason for reason in arrival["errors"])
    assert sum(count for reason, count in objectives["errors"].items() if "refused" in reason) > 10
    assert objectives["requests"] == 300 == objectives["completed"] + sum(objectives["errors"].values())
    # Promises go by arrival, so that as many are in time as without refusals, and the others learn it at once.
    assert objectives["good"] >= arrival["good"]


def test_split_pools_keep_objectives_too() -> None:
    split = ("--replicas", "1", "--decoders", "1", "--rate", "6000")
    arrival, objectives = figures(*split), figures(*split, "--policy", "objectives")
    assert sum(count for reason, count in objectives["errors"].items() if "refused" in reason) > 10
    assert objectives["requests"] == 300 == objectives["completed"] + sum(objectives["errors"].values())
    assert objectives["good"] > arrival["good"]


def test_a_policy_without_objectives_is_one_clear_error() -> None:
    none = CliRunner().invoke(main, ["simulate", "--hardware", "l4", "--rate", "1", "--policy", "objectives"])
    assert none.exit_code == 2 and "--ttft or --itl" in none.output
