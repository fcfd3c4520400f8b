"""How far engines are from float32: figures computed by hand, the truth of a checkpoint, the rows of a comparison."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.bench.test_compare import LIMITS
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_path
from twostroke.backends.cpu.limits import LimitMeter
from twostroke.cli.bench.compare import compare
from twostroke.lab.bench import cases
from twostroke.lab.bench.compare import Comparison, Contestant, Setup, ratio_to_best, rows
from twostroke.lab.bench.comparison_text import text
from twostroke.lab.bench.fidelity import TOP, error_of, fidelity, kl_of, log_softmax
from twostroke.lab.bench.peers import peer as peer_room
from twostroke.lab.bench.peers.peer import OURS, Peer
from twostroke.lab.bench.run_compare import Asked, run
from twostroke.lab.bench.subject import find_subject, write_exact_file
from twostroke.lab.bench.truth import Truth, exact_truth
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import KVKind
from twostroke.weights.gguf.unfold import unfold

TRUTH = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
FAKE = """
import sys
sys.path.insert(0, {drivers!r})
from protocol import likeliest, serve
class Driver:
    def load(self, **_):
        return 0.1
    def prefill(self, tokens):
        return 100.0
    def logprobs(self, texts, top):
        return [[likeliest({row}, top) for _ in ids[1:]] for ids in texts]
    def weight_bytes(self):
        return 250
serve(Driver())
"""


def test_the_error_is_weighted_by_the_probabilities_of_float32() -> None:
    heard = ([0, 2], [float(TRUTH[0]) + 0.1, float(TRUTH[2]) - 0.3])
    assert error_of(TRUTH, heard) == pytest.approx((0.5 * 0.1 + 0.15 * 0.3) / 0.65, rel=1e-5)
    assert error_of(TRUTH, ([0, 1, 2, 3], TRUTH.tolist())) == 0.0


def test_the_divergence_takes_what_was_not_heard_of_as_one_token() -> None:
    heard = ([1, 0], [np.log(0.4), np.log(0.3)])
    by_hand = 0.25 * np.log(0.25 / 0.4) + 0.5 * np.log(0.5 / 0.3) + 0.25 * np.log(0.25 / 0.3)
    assert kl_of(TRUTH, heard) == pytest.approx(by_hand, rel=1e-5)
    assert kl_of(TRUTH, ([0, 1, 2, 3], TRUTH.tolist())) == pytest.approx(0.0, abs=1e-6)
    assert np.isfinite(kl_of(TRUTH, ([0], [0.0]))), "an engine that is sure leaves nothing for the others"


def test_figures_of_several_positions() -> None:
    right, swapped = ([0, 1], TRUTH[:2].tolist()), ([1, 0], [float(TRUTH[1]) + 0.4, float(TRUTH[0]) + 0.4])
    found = fidelity([(TRUTH, right)] * 3 + [(TRUTH, swapped)])
    assert found.error == pytest.approx(0.1, rel=1e-5) and found.same == 0.75 and found.positions == 4
    assert found.p99 == pytest.approx(np.quantile([0, 0, 0, 0.4], 0.99), rel=1e-5)


def test_log_probabilities_of_large_logits() -> None:
    logits = np.array([[1e4, 1e4 - 1.0, -1e4]], np.float32)
    assert np.exp(log_softmax(logits)).sum() == pytest.approx(1.0, rel=1e-6)
    assert log_softmax(logits)[0, 0] - log_softmax(logits)[0, 1] == pytest.approx(1.0, rel=1e-6)


def test_the_truth_is_the_engine_in_float32() -> None:
    with exact_truth(spark_path(), 1) as truth:
        assert len(truth.rows) == sum(len(ids) - 1 for ids in truth.texts) and len(truth.texts) == 8
        assert np.allclose(np.exp(truth.rows[::50]).sum(axis=1), 1.0, atol=1e-4)
        found = {}
        for weights, kv in (("f32", "f32"), ("int8", "bf16")):
            params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=TOP)
            with LLM("spark", weights=weights, kv_format=kv, threads=1) as llm:
                outputs = llm.generate(truth.texts, params)
            heard = [[tuple(zip(*each.top, strict=True)) for each in out.prompt_logprobs or ()] for out in outputs]
            found[weights] = truth.fidelity(heard)
    assert found["f32"].error < 1e-4 < found["int8"].error < 0.2
    assert found["f32"].same == 1.0 and found["f32"].kl < 1e-6 < found["int8"].kl


def fake(folder: Path, name: str, row: list[float]) -> Contestant:
    script = folder / f"{name}_driver.py"
    script.write_text(FAKE.format(drivers=str(peer_room.DRIVERS), row=row))
    return Contestant(Peer(name, name.title(), str(script), ()), Path(sys.executable), "int8")


def test_errors_stand_next_to_speeds(tmp_path: Path) -> None:
    truth = Truth([[5, 6, 7], [8, 9]], np.stack([TRUTH] * 3))
    ours = fake(tmp_path, OURS.name, (TRUTH + np.array([0.1, 0, 0, 0])).tolist())
    other = fake(tmp_path, "other", TRUTH[::-1].tolist())
    silent = replace(ours, peer=replace(ours.peer, name="silent", driver=str(tmp_path / "silent.py")))
    driver = (tmp_path / f"{OURS.name}_driver.py").read_text()
    (tmp_path / "silent.py").write_text(driver.replace("logprobs(", "other("))
    narrow = replace(ours, kv=KVKind.INT8)
    asked = (cases.prefill(128),)
    comparison = Comparison(
        Setup("model", 1, 64, 1, {}, tmp_path), asked, time.perf_counter, lambda line: None, lambda: LIMITS, truth
    )
    *_, columns = comparison.run([ours, narrow, other, silent], 2)
    table = {row.case.name: row for row in rows(columns, asked, lambda *_: None)}
    errors = table[cases.ERROR.name].values
    moved = TRUTH + np.array([0.1, 0, 0, 0])
    exact = moved - np.log(np.exp(moved).sum())
    assert errors[OURS.name] == pytest.approx(error_of(TRUTH, ([0, 1, 2, 3], exact.tolist())), rel=1e-4)
    assert errors["silent"] is None and columns[3].faults[cases.ERROR.name] == "not offered"
    assert table[cases.SAME.name].values == {OURS.name: 1.0, "other": 0.0, "silent": None}
    assert table[cases.ERROR.name].times_best == pytest.approx(errors["other"] / errors[OURS.name])
    assert table["error beside float32, K and V int8"].values[OURS.name] == errors[OURS.name]
    printed = text("model", LIMITS, list(table.values()), columns, 2)
    assert f"| error beside float32 | {errors[OURS.name]:.4f} | {errors['other']:.4f} | - |" in printed
    assert "| same best token as float32 | 100.0% | 0.0% | - |" in printed
    assert cases.BITS.name not in table, "parameters were not counted"
    plain = Comparison(Setup("m", 1, 64, 1, {}, tmp_path), asked, time.perf_counter, lambda _: None, lambda: LIMITS)
    *_, columns = plain.run([ours], 1)
    assert cases.ERROR.name not in {row.case.name for row in rows(columns, asked, lambda *_: None)}


def test_an_engine_without_error_is_compared_with_no_ratio() -> None:
    assert ratio_to_best(cases.ERROR, 0.0, [0.1]) is None and ratio_to_best(cases.ERROR, 0.1, [0.0]) is None
    assert ratio_to_best(cases.ERROR, 0.1, [0.3, 0.2]) == 2.0


@pytest.fixture(scope="module")
def spark_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark as a file whose weights are not rounded."""
    folder = tmp_path_factory.mktemp("spark") / "spark"
    shutil.copytree(spark_path(), folder)
    assert write_exact_file(find_subject(folder, "", (), folder.parent, None)) is None
    return Path(f"{folder}-exact.gguf")


def test_a_file_or_a_folder_or_random_weights_may_be_compared(spark_file: Path, tmp_path: Path) -> None:
    of_file = find_subject(spark_file, "", (), tmp_path, None)
    assert of_file.is_file and of_file.model == spark_file.resolve() and of_file.has_texts
    assert of_file.folder == unfold(spark_file.resolve(), tmp_path)
    of_folder = find_subject(spark_path(), "", ("int8",), tmp_path, None)
    assert not of_folder.is_file and of_folder.weights == ("int8",) and of_folder.is_published
    with pytest.raises(ConfigError, match="--weights int4 was given for the file"):
        find_subject(spark_file, "", ("int4",), tmp_path, None)


def test_an_exact_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(spark_path(), folder)
    config = (folder / "config.json").read_text().replace("LlamaForCausalLM", "XverseForCausalLM")
    (folder / "config.json").write_text(config.replace('"llama"', '"xverse"'))
    why = write_exact_file(find_subject(folder, "", (), tmp_path, None))
    assert why and "cannot be written as GGUF" in why
    assert not Path(f"{folder}-exact.gguf").exists() and list(tmp_path.glob("model-exact-*")) == []


def test_types_of_files_are_refused_for_a_checkpoint_that_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer splits texts in a way that has no name in GGUF. llama.cpp's driver is not started."""
    monkeypatch.setattr("twostroke.lab.bench.run_compare.python_of", lambda folder, peer: tmp_path / "no python")
    folder = tmp_path / "model"
    shutil.copytree(spark_path(), folder)
    said = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**said, "pre_tokenizer": {"type": "Whitespace"}}))
    asked = Asked("", folder, ("int8", "Q4_K_M"), (), tmp_path, rounds=1, threads=1, cases=())
    with pytest.raises(ConfigError, match="Q4_K_M: model cannot be written as a GGUF file") as caught:
        list(run(asked, time.perf_counter, lambda line: None, None))
    assert "tokenizer" in str(caught.value)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_our_own_driver_is_held_against_float32(kind: str, spark_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole run with one case of spark, whose vocabulary is smaller than that of other models."""
    monkeypatch.setattr(LimitMeter, "measure", lambda self, rounds=3: LIMITS)
    monkeypatch.setattr("twostroke.backends.cpu.limits.READ_BYTES", 1 << 20)
    model, weights = (spark_file, ()) if kind == "file" else (spark_path(), ("int8",))
    asked = Asked("", model, weights, (), None, rounds=1, threads=1, cases=(cases.prefill(32),))
    *_, result = run(asked, time.perf_counter, lambda line: None, None)
    table = {row.case.name: row.ours for row in result.rows}
    assert 0 < (table["error beside float32, K and V int8"] or 0) < 0.2
    assert table["prefill 32"] and 0 < (table[cases.ERROR.name] or 0) < 0.2
    assert (table[cases.SAME.name] or 0) > 0.8 and cases.ERROR.name in result.text()


def test_weights_of_a_file_are_not_chosen(spark_file: Path) -> None:
    answer = CliRunner().invoke(compare, ["--model", str(spark_file), "--weights", "int8", "--peers", "none"])
    assert answer.exit_code != 0 and "Leave --weights out" in answer.output
