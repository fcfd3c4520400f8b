"""tools/measure_load.py: rates grow until most requests are late, and the table has the largest goodput."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import measure_load
from tools.load_peers.contenders import Contender, peer

from tests.serve.harness import wait_until


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
    broken = Contender("a", [sys.executable, "-c", "import sys; sys.exit('no such model')"], "nothing")
    with pytest.raises(RuntimeError, match="no such model"), measure_load.started(broken, 1):
        pass


def test_a_server_ends_with_the_processes_that_it_started(tmp_path: Path) -> None:
    """vLLM's engine is a separate process, and a signal to its server does not reach it."""
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    text = f"""
import http.server, pathlib, subprocess, sys
made = subprocess.Popen([sys.executable, "-c", {child!r}])
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(made.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
    port = measure_load.free_port()
    with measure_load.started(Contender("a", [sys.executable, "-c", text, str(port)], "nothing"), port):
        pid = int((tmp_path / "pid").read_text())
        assert Path(f"/proc/{pid}").exists()
    wait_until(lambda: _is_gone(pid), "the end of the child")


def _is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_a_peer_that_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemExit, match="twostroke bench peers install vllm"):
        peer("vllm", argparse.Namespace())


def test_spark_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole run, with two short requests."""
    saved = tmp_path / "load.json"
    words = ["spark", "--workload", "steady-chat", "--rates", "50", "--requests", "2", "--tokens-scale", "0.1"]
    monkeypatch.setattr(sys, "argv", ["measure_load", *words, "--ttft", "300s", "--itl", "300s", "--save", str(saved)])
    measure_load.main()
    assert "| steady-chat |" in capsys.readouterr().out
    assert '"good": 2' in saved.read_text()
