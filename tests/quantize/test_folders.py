"""A folder from its bf16 weights to codes that are read, served and resumed; and all refusals."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.quantize.folders import small_folder
from twostroke import LLM, SamplingParams
from twostroke.quantize.driver import calibrate
from twostroke.quantize.driver.calibrate import quantize_folder, read_source
from twostroke.quantize.driver.job import JOB_NAME
from twostroke.quantize.driver.methods import METHODS, ROUNDING
from twostroke.quantize.driver.report import make_report
from twostroke.quantize.driver.texts import CalibrationText, read_texts
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError, UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.unfold import NAME_FILE


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return small_folder(tmp_path_factory.mktemp("source") / "small")


@pytest.fixture(scope="module")
def texts(source) -> CalibrationText:
    return read_texts(None, Tokenizer.from_folder(source), 512, 1024)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module", params=list(METHODS))
def made(request, source, texts, tmp_path_factory) -> tuple[str, Path, calibrate.Quantized]:
    folder = tmp_path_factory.mktemp("made") / request.param
    return request.param, folder, quantize_folder(source, folder, METHODS[request.param], texts, 1)


def test_codes_err_less_than_the_nearest_on_the_calibration_text(made):
    _, _, quantized = made
    assert len(quantized.errors) == 14
    before = sum(error.rounding**2 for error in quantized.errors)
    less = {"int8": 4}.get(made[0], 1)  # the weights pay for even inputs
    assert sum(error.chosen**2 for error in quantized.errors) < less * before


def test_the_loader_reads_near_values_and_keeps_codes(made, source):
    target, folder, _ = made
    with Checkpoint.open(source) as plain, Checkpoint.open(folder) as quantized:
        assert plain.names == {name for name in quantized.names if not name.endswith("column_order")}
        for name in plain.names:
            exact = (plain.read(name).astype(np.uint32) << 16).view(np.float32)
            found = quantized.read(name)
            if found.dtype == np.uint16:
                continue
            assert found.shape == exact.shape and np.isfinite(found).all()
    model = read_source_of(folder)
    stored = [weight.stored for weight in model.program.weights if weight.stored and weight.stored.kind.is_stored]
    assert len(stored) == 8, target


def read_source_of(folder: Path):
    from twostroke.runner.folder import read_folder

    return read_folder(folder)


def test_the_folder_is_served_and_holds_what_was_beside_the_weights(made, source):
    _, folder, _ = made
    with LLM(str(folder), cache="off") as llm:
        answer = llm.generate(["what is prefill"], SamplingParams(max_tokens=4, temperature=0.0))
    assert len(answer[0].completions[0].token_ids) == 4
    assert (folder / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert not (folder / JOB_NAME).exists()
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("quantization_config")["quant_method"] in ("gptq", "awq", "compressed-tensors")
    assert config == json.loads((source / "config.json").read_text())


def test_every_shard_is_what_the_safetensors_library_reads(made):
    _, folder, _ = made
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    found = {name: file.name for file in folder.glob("*.safetensors") for name in load_file_names(file)}
    assert found == index


def load_file_names(file: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(file, "np") as opened:
        return list(opened.keys())


def test_an_interrupted_job_goes_on_and_ends_with_the_same_bytes(source, texts, tmp_path, made):
    target, whole, _ = made
    folder = tmp_path / "interrupted"

    def interrupt(done: int, total: int, what: str) -> None:
        if what.startswith("stage 3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_folder(source, folder, METHODS[target], texts, 1, interrupt)
    assert not (folder / "config.json").exists() and len(list(folder.glob("*.safetensors"))) == 2
    quantized = quantize_folder(source, folder, METHODS[target], texts, 1)
    assert quantized.from_stage == 2 and len(quantized.errors) == 14
    assert contents(folder) == contents(whole)


def test_a_full_disk_leaves_whole_stages_behind(source, texts, tmp_path, monkeypatch):
    folder, written, real = tmp_path / "full", [], os.fsync

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        quantize_folder(source, folder, ROUNDING, texts, 1)
    assert "same command" in caught.value.fix
    monkeypatch.setattr(os, "fsync", real)
    assert not list(folder.glob(".*partial")) and list(folder.glob("*.safetensors"))
    assert quantize_folder(source, folder, ROUNDING, texts, 1).from_stage >= 1


def test_a_disk_without_room_is_refused_before_anything_is_measured(source, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 1000))
    with pytest.raises(ConfigError, match="GB free"):
        quantize_folder(source, tmp_path / "small", ROUNDING, texts, 1)
    assert not list((tmp_path / "small").glob("*.safetensors"))


def test_another_job_s_folder_is_not_continued(source, texts, tmp_path):
    def interrupt(done: int, total: int, what: str) -> None:
        if what.startswith("stage 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_folder(source, tmp_path / "one", METHODS["int4"], texts, 1, interrupt)
    with pytest.raises(ConfigError, match="differs in --to"):
        quantize_folder(source, tmp_path / "one", METHODS["gptq"], texts, 1)
    with pytest.raises(ConfigError, match="differs in --text"):
        quantize_folder(source, tmp_path / "one", METHODS["int4"], replace(texts, digest="other"), 1)


def test_a_folder_that_holds_something_is_not_written_to(source, texts, tmp_path):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ConfigError, match="exists already"):
        quantize_folder(source, tmp_path, METHODS["int4"], texts, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_what_is_quantized_already_is_refused(made):
    with pytest.raises(UnsupportedModel, match="quantized already"):
        read_source(made[1])


def test_a_gguf_file_is_refused_under_the_name_that_the_user_gave(tmp_path):
    (tmp_path / NAME_FILE).write_text(json.dumps({"file": "/models/tiny.gguf"}))
    with pytest.raises(UnsupportedModel, match="^/models/tiny.gguf is a GGUF file"):
        read_source(tmp_path)


def test_the_report_compares_both_folders_and_each_stage(made, source, texts):
    target, _, quantized = made
    report = make_report(source, target, quantized, texts, 1)
    found = report.as_json()
    assert 0 < found["kl_nats"] < 0.5 and len(found["stages"]) == 4
    assert all(stage["kl"] > 0 for stage in found["stages"])
    assert sum(stage["kl"] for stage in found["stages"]) == pytest.approx(found["kl_nats"], rel=3)
    assert found["bytes"]["after"] < found["bytes"]["before"]
    assert "KL" in report.as_text() and "model.layers" in report.as_text()


def test_a_text_that_is_too_short_or_none_is_refused(source, tmp_path):
    tokenizer = Tokenizer.from_folder(source)
    (tmp_path / "short.txt").write_text("Far too short. " * 20)
    (tmp_path / "binary.txt").write_bytes(b"abc\xff\xfe" * 1000)
    for name, words in (("short.txt", "tokens"), ("binary.txt", "UTF-8"), ("none.txt", "cannot be read")):
        with pytest.raises(ConfigError, match=words):
            read_texts(tmp_path / name, tokenizer, 512, 4096)


def test_held_out_runs_are_not_calibrated_with(texts):
    used = {run.tobytes() for run in texts.used}
    assert len(texts.held_out) and not used & {run.tobytes() for run in texts.held_out}


def test_matrices_whose_shape_fits_no_group_are_kept_and_named(texts, tmp_path):
    odd = small_folder(tmp_path / "odd", intermediate_size=72)
    quantized = quantize_folder(odd, tmp_path / "out", METHODS["int4"], texts, 1)
    assert "no multiple" in quantized.kept["model.layers.0.mlp.down_proj"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "model.layers.1.mlp.down_proj" in config["quantization_config"]["ignore"]
    with Checkpoint.open(tmp_path / "out") as checkpoint:
        assert checkpoint.info("model.layers.0.mlp.down_proj.weight").dtype == "BF16"
