"""bench compare without speeds: errors and bits of formats, a user's text, and OpenVINO's driver on a scripted
runtime."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tools.errors import measure_published

from tests.bench.test_compare import LIMITS
from tests.bench.test_fidelity import TRUTH, fake
from twostroke.assembly.settings.env import process_environment
from twostroke.assets import spark_path
from twostroke.backends.cpu.limits import LimitMeter
from twostroke.cli.bench.compare import compare
from twostroke.lab.bench import cases
from twostroke.lab.bench.compare import Comparison, Setup, rows
from twostroke.lab.bench.comparison_text import text
from twostroke.lab.bench.fidelity import error_of
from twostroke.lab.bench.natural_texts import MOST_RUNS, MOST_TOKENS, OWN_TEXTS, TextSet, texts_of
from twostroke.lab.bench.peers.peer import OURS, find_peer
from twostroke.lab.bench.peers.session import Session
from twostroke.lab.bench.truth import Truth, token_ids
from twostroke.models.common.registry import read_model
from twostroke.ops.quant.formats import format_choice
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import KVKind
from twostroke.weights.json_file import read_object

OPENVINO = """
import numpy as np
class Port:
    def __init__(self, name):
        self.name = name
    def get_names(self):
        return {self.name}
class Request:
    def infer(self, inputs):
        assert set(inputs) == {"input_ids", "attention_mask", "beam_idx"}, set(inputs)
        ids = inputs["input_ids"]
        assert ids.dtype == np.int64 and inputs["attention_mask"].sum() == ids.size
        return {"logits": np.eye(8, dtype=np.float32)[ids] * 3}
class Compiled:
    inputs = [Port("input_ids"), Port("attention_mask"), Port("beam_idx")]
    def output(self, name):
        return name
    def create_infer_request(self):
        return Request()
class Core:
    def compile_model(self, path, device, settings):
        assert path.endswith("-openvino-int8/openvino_model.xml") and device == "CPU"
        assert settings == {"INFERENCE_NUM_THREADS": 1}
        return Compiled()
"""


def columns_of(tmp_path: Path, kv: KVKind) -> tuple[list[object], dict[str, object], str]:
    truth = Truth([[5, 6, 7], [8, 9]], np.stack([TRUTH] * 3))
    ours = fake(tmp_path, OURS.name, TRUTH.tolist())
    other = replace(fake(tmp_path, "other", TRUTH[::-1].tolist()), weights="int8")
    setup = Setup("model", 1, 64, 1, {}, tmp_path, parameters=500)
    notes: list[str] = []
    comparison = Comparison(setup, (), time.perf_counter, notes.append, lambda: LIMITS, truth)
    *_, columns = comparison.run([ours, replace(ours, kv=kv), other], 1)
    found = rows(columns, (), lambda *_: None)
    return notes, {row.case.name: row.values for row in found}, text("m", LIMITS, found, columns, 1)


def test_errors_alone_start_no_clock(tmp_path: Path) -> None:
    notes, table, printed = columns_of(tmp_path, KVKind.INT4)
    assert list(table) == [
        "error beside float32",
        "KL beside float32",
        "same best token as float32",
        "bits of all weights",
        "error beside float32, K and V int4",
        "KL beside float32, K and V int4",
        "same best token as float32, K and V int4",
    ]
    assert table["bits of all weights"] == {OURS.name: 4.0, "other": 4.0}
    assert "| bits of all weights | 4.00 | 4.00 |" in printed and "Limits" not in printed
    assert "round 1 of 1: twostroke int8, K and V int4" in notes


def test_a_users_texts_are_cut_into_runs_that_begin_as_prompts_do(tmp_path: Path) -> None:
    long, short = tmp_path / "long.txt", tmp_path / "short.txt"
    long.write_text("A ship left the harbour. " * 900)
    short.write_text("Two words.")
    asked = texts_of([long, short])
    tokenizer = Tokenizer.from_folder(spark_path())
    runs, whole = token_ids(spark_path(), asked), tokenizer.encode_prompt(long.read_text())
    first = tokenizer.encode_prompt("")
    assert len(runs) == MOST_RUNS + 1 and {len(run) for run in runs[:MOST_RUNS]} == {MOST_TOKENS}
    joined = [token for run in runs[:MOST_RUNS] for token in run[len(first) :]]
    assert whole[: len(first)] == first and whole[len(first) :][: len(joined)] == joined
    assert all(run[: len(first)] == first for run in runs)
    assert runs[-1] == tokenizer.encode_prompt("Two words.")


def test_our_own_texts_are_one_run_each() -> None:
    assert texts_of([]) is OWN_TEXTS
    assert [len(run) <= MOST_TOKENS for run in token_ids(spark_path())] == [True] * len(OWN_TEXTS.texts)
    assert token_ids(spark_path(), TextSet(("",), 1)) == []


@pytest.mark.parametrize("made", [None, b"", b" \n", b"\xff\xfe\x00"])
def test_a_text_that_cannot_be_used_is_named(made: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    if made is not None:
        path.write_bytes(made)
    with pytest.raises(ConfigError, match=r"a\.txt"):
        texts_of([path])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--errors"], "--model"),
        (["--kv-format", "int9"], "'int9' is none of"),
        (["--weights", "int7"], "'int7' is none of"),
        (["--model", "x", "--text", "/nowhere/a.txt"], "cannot be read as text"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_measured(words: list[str], said: str) -> None:
    answer = CliRunner().invoke(compare, [*words, "--peers", "none"])
    assert answer.exit_code == 2 and said in answer.output


def test_the_command_as_a_user_types_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitMeter, "measure", lambda self, rounds=3: LIMITS)
    monkeypatch.setattr("twostroke.backends.cpu.limits.READ_BYTES", 1 << 20)
    asked, words = tmp_path / "a.txt", ["--peers", "none", "--errors", "--threads", "1", "--json"]
    asked.write_text("What is prefill? It is the step that reads a prompt.")
    words += ["--model", str(spark_path()), "--weights", "f32,int6", "--kv-format", "int4", "--text", str(asked)]
    answer = CliRunner().invoke(compare, words)
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    values = {(row["weights"], row["case"]): row["values"][OURS.name] for row in found["rows"]}
    assert values["f32", cases.ERROR.name] < values["f32", "error beside float32, K and V int4"]
    assert values["f32", cases.ERROR.name] < values["int6", cases.ERROR.name] < 0.5
    model, chosen = read_model(read_object(spark_path() / "config.json")), format_choice("int6")
    held = sum(chosen(each).total_bytes(each.all_rows, each.columns) for each in model.plain.weights)
    assert values["int6", cases.BITS.name] == pytest.approx(8 * held / model.parameters())
    assert values["f32", cases.BITS.name] == pytest.approx(32, rel=0.01)
    assert not any(row["case"].startswith(("prefill", "decode", "start", "peak")) for row in found["rows"])


def test_openvinos_driver_runs_the_exported_model(tmp_path: Path) -> None:
    """The runtime is scripted: the logit of the token that was read is 3."""
    scripts, model = tmp_path / "scripts", tmp_path / "model"
    exported = Path(f"{model}-openvino-int8")
    for folder in (scripts, exported):
        folder.mkdir()
    (scripts / "openvino.py").write_text(OPENVINO)
    (scripts / "openvino_genai.py").write_text("LLMPipeline = lambda *_, **__: None\n")
    (exported / "openvino_model.bin").write_bytes(b"1234567")
    variables = {**process_environment(), "PYTHONPATH": str(scripts)}
    with Session(find_peer("openvino"), Path(sys.executable), variables, tmp_path / "log") as session:
        session.ask("load", model=str(model), weights="int8", threads=1, context=64, sequences=1)
        ((first, second), (third,)) = session.ask("logprobs", texts=[[3, 5, 1], [2, 0]], top=2)
        assert session.ask("weight_bytes") == 7
    assert [each[0][0] for each in (first, second, third)] == [3, 5, 2]
    exact = np.array([3.0] + [0.0] * 7, np.float32)
    exact -= np.log(np.exp(exact).sum())
    assert error_of(exact, ([0, 1], first[1])) < 1e-6


def test_the_tool_of_published_models_measures_errors_and_speeds_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitMeter, "measure", lambda self, rounds=3: LIMITS)
    monkeypatch.setattr("twostroke.backends.cpu.limits.READ_BYTES", 1 << 20)
    monkeypatch.setattr(measure_published, "CASES", (cases.prefill(32),))
    monkeypatch.setattr(measure_published, "SPEEDS", ("prefill 32",))
    asked = {"only": "int8", "kv_format": "none", "peers": "none", "peers_folder": None, "threads": 1, "rounds": 1}
    result = measure_published.measured(spark_path(), argparse.Namespace(**asked, speed=True))
    (row,) = measure_published.rows_of(result)
    assert row["engine"] == OURS.name and row["speed"]["prefill 32"] > 0 < row["error"]
    assert measure_published.with_result({}, "spark", result)["models"]["spark"]["positions"] > 500
