"""The commands as a user runs them: their output and their exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from tests.cli.in_process import run
from twostroke.cli.main import VERBS, main
from twostroke.types.pooling import Task


def process(
    *words: str, text: str | None = None, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twostroke", *words]
    stdin = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(environ or {})}, timeout=120, **stdin
    )


BENCH = [
    ["bench", *verb.split()]
    for verb in ("phases", "predict", "compare", "peers install", "peers list", "serve", "sweep")
]
GROUPS = {"cache": ("list", "verify", "rm", "gc"), "cluster": ("up", "status")}
GROUPED = [[group, verb] for group, verbs in GROUPS.items() for verb in verbs]


@pytest.mark.parametrize("words", [[], *([v] for v in VERBS if v != "bench" and v not in GROUPS), *BENCH, *GROUPED])
def test_help_begins_with_an_example(words):
    result = run(*words, "--help")
    assert result.returncode == 0 and result.stdout.startswith("Example: twostroke")


def test_generate_answers_and_streams_text():
    result = process("generate", "What is prefill?", "--max-tokens", "24")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split()) > 5


def test_generate_reads_standard_input_and_prints_json():
    result = process(
        "generate", "--json", "--max-tokens", "5", "--logprobs", "2", "--temperature", "0", text="What is TTFT?"
    )
    found = json.loads(result.stdout)
    completion = found["completions"][0]
    assert len(completion["token_ids"]) == 5 and completion["finish_reason"] == "length"
    assert completion["ttft_s"] > 0 and completion["mean_itl_s"] > 0
    assert all(len(entry["top"]) == 2 and entry["logprob"] == entry["top"][0][1] for entry in completion["logprobs"])


def test_a_seed_repeats_and_another_differs():
    words = ["generate", "--raw", "the", "--max-tokens", "12", "--temperature", "1.5", "--json"]
    texts = [json.loads(run(*words, "--seed", seed).stdout)["completions"][0]["token_ids"] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_chat_keeps_history_and_shows_stats():
    result = process(
        "chat",
        "--max-tokens",
        "20",
        text="/stats\nWhat is decode?\n/stats\nWhat is TTFT?\n/stats\n/nonsense\n/reset\n/exit\nnever read\n",
    )
    assert result.returncode == 0, result.stderr
    assert "No answer yet." in result.stdout and "There is no command /nonsense." in result.stdout
    assert len(re.findall(r"TTFT [\d.]+ ms; \d+ tokens, ITL [\d.]+ ms", result.stdout)) == 2
    cached = [int(n) for n in re.findall(r"(\d+) prompt tokens from the cache", result.stdout)]
    assert cached[0] == 0 and cached[1] > 0


def test_config_gives_every_value_a_reason():
    result = run("config", "--weights", "int4", "--json", environ={"TWOSTROKE_THREADS": "1"})
    settings = json.loads(result.stdout)
    assert settings["weights"] == {"value": "int4", "reason": "--weights"}
    assert settings["threads"]["value"] == 1 and "TWOSTROKE_THREADS" in settings["threads"]["reason"]
    assert all(setting["reason"] for setting in settings.values())
    assert "kv_tokens" in run("config").stdout


@pytest.mark.parametrize(
    ("words", "code", "needles"),
    [
        (["generate", "x", "--model", "/no/such/folder"], 3, ["error:", "fix:"]),
        (["generate", "x", "--weights", "int3"], 2, ["int3", "int8"]),
        (["generate", "x", "--temperature", "9"], 2, ["temperature", "between 0 and 2"]),
        (["generate", ""], 2, ["empty"]),
        (["generate", "x", "--kv-memory", "900GB"], 4, ["does not fit", "weights", "available"]),
        (["config", "--context", "9000000"], 2, ["positions"]),
        (["bench", "phases", "--batches", "0"], 2, ["1,4,8"]),
        (["nonsense"], 2, ["nonsense"]),
    ],
)
def test_bad_input_gets_one_clear_error_and_its_code(words, code, needles):
    result = run(*words)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert all(needle in result.stderr for needle in needles), result.stderr


def test_a_server_that_strangers_reach_needs_a_key():
    result = process("serve", "--host", "0.0.0.0")
    assert result.returncode == 2 and "API key" in result.stderr and "Traceback" not in result.stderr


def test_verbose_shows_the_traceback():
    assert "Traceback" in process("generate", "x", "--model", "/no/such/folder", "-v").stderr


@pytest.mark.daily
@pytest.mark.slow
def test_bench_phases_measures_both_phases():
    words = [
        "bench",
        "phases",
        "--prompts",
        "32",
        "--batches",
        "1,2",
        "--at",
        "16",
        "--new",
        "6",
        "--rounds",
        "1",
        "--json",
    ]
    report = json.loads(process(*words).stdout)
    assert [(f["phase"], f["batch"]) for f in report["figures"]] == [("prefill", 1), ("decode", 1), ("decode", 2)]
    assert all(f["tokens_per_s"] > 0 for f in report["figures"])
    assert report["peak_bytes"] > 10_000_000


def test_serve_answers_and_stops_cleanly():
    command = [sys.executable, "-m", "twostroke", "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while not any("curl" in line for line in lines):
            line = server.stdout.readline()
            assert line, server.stderr.read()
            lines.append(line)
        text = "".join(lines)
        assert re.search(r"room for [\d,]+ tokens", text)
        url = re.search(r"Serving on (http://127\.0\.0\.1:\d+)", text)[1]
        with urllib.request.urlopen(url + "/v1/models", timeout=120) as answer:
            assert json.load(answer)["data"][0]["id"] == "spark"
    finally:
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=120)
    assert server.returncode == 0, errors


def test_the_line_to_try_has_a_key_where_one_is_needed() -> None:
    from twostroke.cli.server.run_built import KEY_HEADER, try_text

    assert "Authorization" not in try_text("http://127.0.0.1:1", "spark", "")
    assert "/v1/embeddings " in try_text("http://127.0.0.1:1", "mini", "", Task.EMBED)
    line = try_text("http://127.0.0.1:1", "spark", KEY_HEADER).splitlines()[-1]
    words = shlex.split(line)
    assert words[0] == "curl" and words[words.index("-H") + 1] == "Authorization: Bearer $TWOSTROKE_API_KEY"


def test_a_key_is_never_printed():
    key = "sk-do-not-print-me"
    asked = [["config", "--api-key", key], ["config", "--json"], ["config", "--api-key", key, "--port", "x"]]
    for words in asked:  # the last one runs in a process of its own
        result = CliRunner().invoke(main, words, env={"TWOSTROKE_API_KEY": key})
        assert result.output and key not in result.stdout + result.stderr
    result = process(*asked[-1], environ={"TWOSTROKE_API_KEY": key})
    assert result.returncode == 2 and key not in result.stdout + result.stderr
    found = CliRunner().invoke(main, ["config", "--json", "--api-key", key])
    assert json.loads(found.stdout)["api_key"]["value"] == "(set)"
    empty = CliRunner().invoke(main, ["config", "--host", "0.0.0.0", "--api-key", " "])
    assert empty.exit_code == 2


def test_generate_explains_after_the_answer_and_in_json(tmp_path):
    told = run("generate", "What is prefill?", "--max-tokens", "8", "--explain", "--trace", str(tmp_path / "t.jsonl"))
    assert told.returncode == 0, told.stderr
    assert re.search(r"^req-1: slow to (start|stream)\. ", told.stdout, re.MULTILINE)
    assert "where the time went" in told.stdout and "figures of the cost model: " in told.stdout
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 1 + 8 + 1
    found = json.loads(run("generate", "What is prefill?", "--max-tokens", "8", "--explain", "--json").stdout)
    (one,) = found["explain"]
    assert abs(sum(one["parts_s"].values()) - one["e2e_s"]) < 1e-6 and one["causes"]


def test_chat_explains_each_answer_and_on_demand():
    lines = "/explain\nWhat is prefill?\n/explain\n/exit\n"
    told = run("chat", "--max-tokens", "6", "--explain", text=lines)
    assert told.returncode == 0, told.stderr
    assert "No answer yet." in told.stdout
    assert len(re.findall(r"^req-1: slow to ", told.stdout, re.MULTILINE)) == 2


def test_a_trace_that_cannot_be_written_is_refused(tmp_path):
    told = run("generate", "hi", "--trace", str(tmp_path / "no" / "t.jsonl"))
    assert told.returncode == 2 and "cannot be written" in told.stderr and not told.stdout


def test_explain_without_a_server_says_so():
    told = run("explain", "chatcmpl-1", "--url", "http://127.0.0.1:1")
    assert told.returncode == 2 and "No server answers" in told.stderr


@pytest.mark.slow
def test_generate_keeps_to_a_pattern_and_to_a_schema(tmp_path):
    told = run("generate", "When?", "--regex", "20[0-9]{2}-[01][0-9]")
    assert re.fullmatch(r"20[0-9]{2}-[01][0-9]\n?", told.stdout), told.stderr
    (tmp_path / "s.json").write_text('{"enum": ["prefill", "decode"]}')
    told = run("generate", "Which?", "--json-schema", str(tmp_path / "s.json"))
    assert json.loads(told.stdout) in ("prefill", "decode"), told.stderr
    for words in (["--regex", "("], ["--json-schema", "/nowhere"], ["--regex", "a", "--json-schema", "b"]):
        told = run("generate", "x", *words)
        assert told.returncode == 2 and not told.stdout


@pytest.mark.parametrize(
    ("words", "shell"), [(["bash"], "bash"), (["zsh"], "zsh"), (["fish"], "fish"), ([], "bash"), (["tcsh"], "bash")]
)
def test_who_asks_for_the_shells_script_reads_how_to_get_it(words: list[str], shell: str) -> None:
    """docker, kubectl and others print it by `completion`; here `generate` was suggested, then bash's for zsh."""
    told = CliRunner().invoke(main, ["completion", *words])
    assert told.exit_code == 2 and f"_TWOSTROKE_COMPLETE={shell}_source twostroke" in told.output
