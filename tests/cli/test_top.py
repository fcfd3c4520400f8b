"""`twostroke top` with a real server."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.serve.harness import Live, serving, wait_until
from twostroke.cli.main import main
from twostroke.cli.server import running_server
from twostroke.cli.server.top_picture import Picture
from twostroke.cli.shared.server_records import ServerRecord
from twostroke.server.build import build_server
from twostroke.types.errors import ConfigError


@pytest.fixture(scope="module")
def spark() -> Iterator[Live]:
    settings = {"kv_memory": "20MB", "threads": 1, "api_key": "secret", "ttft": "30s"}
    with build_server("spark", settings) as built, serving(built.parts) as live:
        yield live


def top(*words: str) -> str:
    done = CliRunner().invoke(main, ["top", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_once_as_json_while_requests_run(spark: Live) -> None:
    asked = {"model": "spark", "prompt": [5] * 40, "max_tokens": 1800, "ignore_eos": True}
    run = threading.Thread(target=lambda: spark.post("/v1/completions", asked, Authorization="Bearer secret"))
    run.start()
    engine, recent = spark.parts.serving.engine, spark.parts.telemetry.metrics.recent
    wait_until(lambda: engine.gauges().running == 1 and recent.itl_s, "decode")
    found = json.loads(top("--url", spark.url, "--api-key", "secret", "--once", "--json"))
    drawn = top("--url", spark.url, "--api-key", "secret", "--once")
    run.join()
    assert found["model"] == "spark" and found["latency"]["ttft"]["objective_s"] == 30
    assert sum(found["shares"].values()) == pytest.approx(1) and found["decode_tokens_per_s"] > 0
    assert sum(found["pages"].values()) == spark.parts.serving.view.about["settings"]["kv_tokens"] // 16
    for each in found["requests"]:
        assert each["prompt_tokens"] == 40 and each["phase"] in ("filling", "decoding")
    assert "twostroke top: spark" in drawn and "KV pages" in drawn and "TTFT" in drawn


def test_without_the_key_and_without_a_server(spark: Live) -> None:
    refused = CliRunner().invoke(main, ["top", "--url", spark.url, "--once"])
    assert refused.exit_code == 2 and "--api-key" in refused.output
    unreached = CliRunner().invoke(main, ["top", "--url", "http://127.0.0.1:9", "--once"])
    assert unreached.exit_code == 2 and "No server answers" in unreached.output


def test_without_an_address_it_is_the_server_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(*urls: str) -> str:
        records = [ServerRecord(1, "1", url, "spark", ("spark",)) for url in urls]
        monkeypatch.setattr(running_server, "local_servers", lambda: records)
        return running_server.address_here()

    elsewhere, usual = "http://127.0.0.1:9", running_server.DEFAULT_URL
    assert address() == usual and address(elsewhere) == elsewhere and address(elsewhere, usual) == usual
    with pytest.raises(ConfigError, match="Several servers"):
        address(elsewhere, "http://127.0.0.1:10")
    address(elsewhere)
    for verb in (["top", "--once"], ["explain", "x"]):
        assert elsewhere in CliRunner().invoke(main, verb).output


def test_figures_add_up() -> None:
    picture = Picture({"model": "m"})
    run = {
        "rows": [[0, 0, 8, 0, 0], [1, 30, 9, 4, 6]],  # the second wrote 6 tokens: 5 of 8 guesses were right
        "prefill_share": 0.75,
        "predicted_s": [0.5, 0.5],
        "begin_s": 9.0,
        "times": [[0, 1_000_000, 800_000, 100_000, 1]],
    }
    latency = {"ttft": {"count": 1, "objective_s": 0.5, "p50_s": 0.75, "p90_s": 0.75, "p99_s": 0.75, "within": 0.0}}
    requests = [[0, "filling", 8.5, 9.0, None, 100, 8, 0], [1, "decoding", 7.0, 7.0, 7.5, 26, 26, 16]]
    frame = {"now_s": 11.0, "names": ["a", "b"], "runs": [run], "requests": requests, "latency": latency}
    picture.add({**frame, "gauges": {"running": 2, "waiting": 1, "pages_used": 3, "pages_cached": 1, "pages_free": 4}})
    found = picture.figures()
    assert found["shares"] == pytest.approx({"prefill": 0.6, "decode": 0.2, "sampling": 0.1, "host": 0.1})
    assert (found["prefill_tokens_per_s"], found["decode_tokens_per_s"]) == (8 / 5, 6 / 5)
    assert found["predicted_over_measured"] == pytest.approx(0.5) and found["busy_share"] == pytest.approx(0.2)
    assert found["requests"][1]["ttft_s"] == 0.5 and found["requests"][0]["age_s"] == 2.5
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(picture.drawing())
    told = console.export_text()
    assert "2 running, 1 waiting" in told and "750.0 ms" in told and "used 3" in told
