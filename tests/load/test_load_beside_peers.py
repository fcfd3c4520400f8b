"""tools/measure_load.py: rates grow until most requests are late, and the table has the largest goodput."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import measure_load


def test_rates_grow_until_most_requests_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {0.5: 1.0, 1.0: 0.9, 2.0: 0.3, 4.0: 0.0}
    tried = list[float]()

    def load(url: str, workload: str, rate: float, asked: Any) -> dict[str, Any]:
        tried.append(rate)
        return {"rate": rate, "good_share": shares[rate], "goodput_per_s": rate * shares[rate]}

    monkeypatch.setattr(measure_load, "load", load)
    runs = measure_load.climbed("http://none", "overload", argparse.Namespace(rates=list(shares)))
    assert tried == [0.5, 1.0, 2.0]
    assert measure_load.best(runs) == 0.9


def test_the_table_compares_with_the_best_other() -> None:
    def at(goodput: float) -> dict[str, Any]:
        return {"steady-chat": [{"goodput_per_s": goodput}, {"goodput_per_s": goodput / 2}]}

    found = measure_load.table({"servers": {"twostroke": at(3.0), "a": at(1.0), "b": at(1.5)}})
    assert found.splitlines() == [
        "| workload | twostroke | a | b | ours by the best other |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| steady-chat | 3.00 | 1.00 | 1.50 | 2.0 |",
    ]


def test_a_server_that_does_not_start_is_told_with_its_words() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with pytest.raises(RuntimeError, match="no such model"), measure_load.started(command, 1):
        pass


def test_spark_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole run, with two short requests."""
    saved = tmp_path / "load.json"
    words = ["spark", "--workload", "steady-chat", "--rates", "50", "--requests", "2", "--tokens-scale", "0.1"]
    monkeypatch.setattr(sys, "argv", ["measure_load", *words, "--ttft", "300s", "--itl", "300s", "--save", str(saved)])
    measure_load.main()
    assert "| steady-chat |" in capsys.readouterr().out
    assert '"good": 2' in saved.read_text()
