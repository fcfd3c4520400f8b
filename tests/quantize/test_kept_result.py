"""The files of `twostroke quantize --to int4` for `--weights int4`, and when they are not taken. Encoders as GGUF,
too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.quantize.folders import small_folder
from tests.retrieval.folders import with_sentence_files, write_encoder
from twostroke import LLM, SamplingParams
from twostroke.assembly.find import resolve_all
from twostroke.assembly.settings.env import read_machine
from twostroke.cli.main import main
from twostroke.quantize.driver.kept_result import NOTES

pytestmark = pytest.mark.slow


def weights_of(folder: Path, **options: Any) -> tuple[str, str]:
    """The setting, and its reason."""
    settings = resolve_all(str(folder), {"weights": "int4", **options}).settings
    return next((setting.value, setting.reason) for setting in settings if setting.name == "weights")


def answer(folder: Path, **options: Any) -> tuple[int, ...]:
    with LLM(str(folder), **options) as llm:
        found = llm.generate(["what is prefill"], SamplingParams(max_tokens=8, temperature=0.0))
    return tuple(found[0].completions[0].token_ids)


def quantized(source: Path, output: Path, target: str) -> str:
    words = ["quantize", str(source), "--to", target, "--output", str(output), "--tokens", "2048", "--no-report"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.output


def test_weights_int4_takes_what_calibration_wrote_while_both_are_as_they_were(tmp_path):
    source, made = small_folder(tmp_path / "source"), tmp_path / "made"
    assert weights_of(source) == ("int4", "--weights")
    assert "takes these weights from now on" in quantized(source, made, "int4")
    value, reason = weights_of(source)
    assert value == "stored" and str(made) in reason and "--weights int4" in reason
    assert answer(source, weights="int4") == answer(made)
    assert weights_of(source, weights="int8") == ("int8", "--weights")
    assert weights_of(source, cache="off") == ("int4", "--weights")

    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-4}))
    assert weights_of(source) == ("int4", "--weights")  # another model than the one that was calibrated
    (source / "config.json").write_text(json.dumps(config))
    assert weights_of(source)[0] == "stored"

    min(made.glob("*.safetensors")).write_bytes(b"")
    value, reason = weights_of(source)
    assert value == "int4" and "is gone or was changed" in reason
    shutil.rmtree(made)
    assert "is gone or was changed" in weights_of(source)[1]
    for note in (read_machine().cache_folder / NOTES).iterdir():
        note.write_text("{")
    assert weights_of(source) == ("int4", "--weights")


def test_an_encoder_is_written_as_gguf_by_the_command(tmp_path):
    write_encoder(tmp_path / "hf", "bert")
    with_sentence_files(tmp_path / "hf", {"pooling_mode_cls_token": True})
    quantized(tmp_path / "hf", tmp_path / "out", "gguf:Q8_0")
    with LLM(str(tmp_path / "out")) as llm:
        assert llm.resolved["task"] == "embed" and llm.embed(["page"]).shape == (1, 64)
