"""`twostroke bench serve` and `bench sweep` as a user runs them, against a scripted server and the embedded model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.load.fake_openai import Fake, Refusal, answer, serving_in_a_thread
from tests.patience import PATIENCE_S
from tests.serve.harness import Live, serving
from twostroke.cli.bench.sweep_prediction import is_here, prediction_model
from twostroke.cli.main import main
from twostroke.cost.calibration import AttentionRates, Calibration, HostRates, LinearRates
from twostroke.cost.curve import Curve
from twostroke.server.build import build_server
from twostroke.types.spec.formats import KVKind, WeightKind


def bench(*words: str) -> Result:
    return CliRunner().invoke(main, ["bench", *words], prog_name="twostroke")


@pytest.fixture(scope="module")
def spark() -> Iterator[Live]:
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as live:
        yield live


def test_the_projects_own_server_under_load(spark: Live, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    words = [
        "--concurrency",
        "3",
        "--requests",
        "6",
        "--prompt",
        "90",
        "--output",
        "12",
        "--json",
        "--save",
        str(saved),
    ]
    result = bench("serve", spark.url, *words)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["figures"]["completed"] == 6 and printed["figures"]["errors"] == {}
    assert printed["figures"]["prompt_tokens"] == 6 * 90 and printed["figures"]["output_tokens"] == 6 * 12
    assert printed["tokens"][0] == "prompt tokens by usage are as asked in 6 of 6 answers"
    report = json.loads(saved.read_text())
    assert len(report["requests"]) == 6 and report["figures"] == printed["figures"]
    for each in report["requests"]:
        assert each["intended_s"] <= each["sent_s"] <= each["times_s"][0] <= each["times_s"][-1] <= each["ended_s"]
    figures = printed["figures"]
    assert figures["e2e"]["mean"] >= figures["ttft"]["mean"] and figures["tpot"]["count"] == 6
    assert [tool["tool"] for tool in printed["other_tools"]] == ["vllm bench serve", "aiperf", "guidellm"]


def test_agents_find_their_prefixes_in_the_cache(spark: Live) -> None:
    words = ["--workload", "shared-prefix-agents", "--requests", "6", "--concurrency", "1", "--tokens-scale", "0.3"]
    result = bench("serve", spark.url, *words, "--max-output", "4", "--json", "--route", "completions")
    found = json.loads(result.stdout)["figures"]
    assert found["completed"] == 6 and found["cached_tokens"] > 0.5 * found["prompt_tokens"]


def test_completions_with_a_tokenizer_at_a_rate(spark: Live) -> None:
    result = bench(
        "serve",
        spark.url,
        *"--rate 50 --requests 5 --route completions --tokenizer spark --output 4 --ttft 20s".split(),
    )
    assert result.exit_code == 0 and "5 of 5 requests" in result.stdout
    assert "as asked in 5 of 5" in result.stdout and "5 of 5 met TTFT 20000 ms" in result.stdout


def test_a_trace_is_replayed_at_its_times(spark: Live, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:15:46.{place},{40 + place},{3 + place}" for place in range(4)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    result = bench("serve", spark.url, "--trace", str(trace), "--json", "--route", "completions")
    found = json.loads(result.stdout)
    assert found["figures"]["output_tokens"] == 3 + 4 + 5 + 6 and found["figures"]["prompt_tokens"] == 166
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nnever,1,2\n")
    broken = bench("serve", spark.url, "--trace", str(trace))
    assert broken.exit_code == 2 and "trace.csv, line 2" in broken.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nobody"], "does not serve 'nobody'"),
        (["--rate", "1", "--concurrency", "2"], "two kinds of load"),
        (["--trace", "nowhere.json"], "cannot be read"),
        (["--body", "[1]"], "no JSON object"),
        (["--save", "no-such-folder/x.json"], "cannot be written"),
        (["--workload", "calm"], "steady-chat"),
    ],
)
def test_wrong_wishes_are_one_clear_error(words: list[str], said: str) -> None:
    with serving_in_a_thread(Fake()) as fake:
        result = bench("serve", fake.url, *words)
    assert result.exit_code == 2 and said in result.stderr and "Traceback" not in result.output


def test_nothing_answered_is_a_failure_with_a_report() -> None:
    script = Fake(lambda number, body: Refusal(503, "full") if body["max_tokens"] == 5 else answer(body))
    with serving_in_a_thread(script) as fake:
        result = bench("serve", fake.url, "--requests", "3", "--output", "5", "--warmup", "0")
    assert result.exit_code == 1 and "3 failed: HTTP 503: full" in result.stdout


def test_ctrl_c_prints_what_was_measured_and_spares_the_old_report(tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    saved.write_text("the old one")
    script = Fake(lambda number, body: answer(body, 60.0) if body["max_tokens"] == 9 and number > 30 else answer(body))
    with serving_in_a_thread(script) as fake:
        words = ["bench", "serve", fake.url, "--requests", "90", "--output", "9", "--json", "--save", str(saved)]
        program = "from twostroke.cli.main import main; main(prog_name='twostroke')"
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
        )
        deadline = time.monotonic() + 60
        while fake.now == 0 or len(fake.bodies) <= 30:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    report = json.loads(output)
    assert process.returncode == 130 and report["interrupted"] and report["cut"] == 1
    assert report["figures"]["completed"] == report["figures"]["requests"] > 10
    assert saved.read_text() == "the old one"
    assert json.loads((tmp_path / "report.interrupted.json").read_text())["figures"] == report["figures"]


def test_a_sweep_walks_and_draws(tmp_path: Path) -> None:
    plot, saved = tmp_path / "s.svg", tmp_path / "s.json"
    with serving_in_a_thread(Fake(lambda number, body: answer(body, 0.002, 0.001))) as fake:
        words = "--users 1,3 --prompts 40,20,40 --prompt 30 --output 4 --rounds 2 --predict none --warmup 1".split()
        result = bench("sweep", fake.url, *words, "--plot", str(plot), "--save", str(saved))
    assert result.exit_code == 0, result.output
    value = json.loads(saved.read_text())
    assert [each["prompt_tokens"] for each in value["lengths"]] == [20, 40]
    assert [(each["users"], each["figures"]["completed"]) for each in value["users"]] == [(1, 2), (3, 6)]
    tree = ElementTree.fromstring(plot.read_text())
    words_drawn = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    # A label without room is left out, and the machine decides where the points lie. One label always has room.
    assert {"1 user", "3 users"} & set(words_drawn) and "TTFT and prompt length, one user" in words_drawn
    assert "predicted by the cost model" not in words_drawn and "predicted" not in result.stderr


def rates(low: float) -> Curve:
    return Curve.of([(1, low), (512, 100 * low)])


CALIBRATION = Calibration(
    *("mark", "A machine", 2, 10**10, 0.0, 20e9, 1e11, 1e12, 1e6, 1e8),
    {WeightKind.INT8: LinearRates(rates(1e-10), rates(5e-11), rates(1e-10))},
    {KVKind.INT8: AttentionRates(1e-10, 5e-11, 1e-11, 1e-7, 1e-8, rates(1e-11))},
    *(rates(1e-10), 1e-5, HostRates(1e-4, 1e-5, 1e-9)),
)


def test_a_sweep_of_spark_has_its_prediction(spark: Live, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("twostroke.cli.bench.sweep_prediction.kept_measurement", lambda threads: CALIBRATION)
    plot = tmp_path / "s.svg"
    words = "--users 1,2 --prompts 80,160 --prompt 64 --output 4 --rounds 1 --warmup 0 --json".split()
    result = bench("sweep", spark.url, *words, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    guessed = json.loads(result.stdout)["prediction"]
    assert [each["users"] for each in guessed["users"]] == [1, 2]
    assert guessed["users"][1]["output_tokens_per_s"] > guessed["users"][0]["output_tokens_per_s"]
    assert [each[0] for each in guessed["ttft"]] == [80, 160] and guessed["ttft"][1][1] > guessed["ttft"][0][1]
    assert "predicted by the cost model" in plot.read_text()


def test_a_prediction_names_no_folder_and_says_that_the_doctor_was_disturbed(tmp_path: Path) -> None:
    from twostroke.assets import spark_path
    from twostroke.cli.bench.sweep_prediction import predict
    from twostroke.lab.bench.load.sweep import Sweep, SweepAsk

    folder = shutil.copytree(spark_path(), tmp_path / "a-model")
    nothing = Sweep("served", SweepAsk())
    quiet = predict(nothing, str(folder), None, None, CALIBRATION).words
    assert quiet.startswith("a-model, int8 weights") and str(tmp_path) not in quiet and "other programs" not in quiet
    loud = predict(nothing, str(folder), None, None, replace(CALIBRATION, others_share=0.72)).words
    assert loud == quiet + "; other programs took 72% of the cores while doctor measured"


def test_a_sweep_without_a_measurement_says_so(spark: Live, monkeypatch: Any) -> None:
    monkeypatch.setattr("twostroke.cli.bench.sweep_prediction.kept_measurement", lambda threads: None)
    words = "--users 1 --prompts 80 --prompt 64 --output 4 --rounds 1 --warmup 0".split()
    result = bench("sweep", spark.url, *words)
    assert result.exit_code == 0 and "twostroke doctor" in result.stderr
    asked = bench("sweep", spark.url, *words, "--predict", "spark")
    assert asked.exit_code == 2 and "none is kept" in asked.stderr


def test_a_sweep_draws_svg_only() -> None:
    result = bench("sweep", "127.0.0.1:1", "--plot", "x.png")
    assert result.exit_code == 2 and ".svg" in result.stderr


def test_for_which_server_something_is_predicted() -> None:
    assert is_here("http://localhost:1/v1") and is_here("http://127.0.0.2/v1") and not is_here("http://10.0.0.1/v1")
    assert prediction_model("none", "spark", "http://localhost/v1") == (None, "")
    assert prediction_model("x", "y", "http://far/v1") == ("x", "")
    assert prediction_model(None, "spark", "http://localhost/v1") == ("spark", "")
    assert "another machine" in prediction_model(None, "spark", "http://far/v1")[1]
    assert "--predict" in prediction_model(None, "llama", "http://localhost/v1")[1]
