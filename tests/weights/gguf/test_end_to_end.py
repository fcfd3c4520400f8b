"""A GGUF file of the embedded model, from its path to the answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from tests.weights.gguf.export import all_of, write_gguf
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_path
from twostroke.types.errors import ModelNotFound

QUESTION = "What is prefill?"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    for kind in (Type.BF16, Type.F16, Type.Q8_0):
        write_gguf(spark_path(), folder / f"spark-{kind.name}.gguf", "llama", all_of(kind))
    return folder


def answer(model: str, **options: str) -> str:
    with LLM(model, **options) as llm:
        params = SamplingParams(max_tokens=40, temperature=0.0)
        return llm.chat([{"role": "user", "content": QUESTION}], params).completions[0].text


def test_the_same_answer_as_from_safetensors(files):
    expected = answer("spark", weights="bf16", cache="off")
    for kind in ("BF16", "F16"):
        assert answer(str(files / f"spark-{kind}.gguf"), weights="bf16", cache="off") == expected
    assert len(expected) > 40


def test_kept_weights_are_mapped_the_second_time(files, tmp_path):
    first, second = (answer(str(files / "spark-Q8_0.gguf"), cache=str(tmp_path)) for _ in range(2))
    assert first == second and len(list((tmp_path / "packed").glob("*.pack"))) == 1
    assert len(list((tmp_path / "gguf").iterdir())) == 1


def test_a_folder_with_several_says_what_there_is(files):
    with pytest.raises(ModelNotFound, match="3 models.*BF16.*F16.*Q8_0"):
        LLM(str(files))


def test_the_command_line(files, tmp_path):
    command = [sys.executable, "-m", "twostroke", "config", str(files / "spark-Q8_0.gguf"), "--json"]
    done = subprocess.run([*command, "--cache", str(tmp_path)], capture_output=True, text=True, check=True)
    settings = json.loads(done.stdout)
    assert "spark-Q8_0.gguf" in json.dumps(settings)
    plan = [
        sys.executable,
        "-m",
        "twostroke",
        "plan",
        str(files / "spark-Q8_0.gguf"),
        "--hardware",
        "epyc-9654",
        "--json",
    ]
    done = subprocess.run(plan, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"]


def test_files_beside_the_model_are_named_once(files, tmp_path, capsys):
    model = tmp_path / "model.GGUF"
    model.symlink_to(files / "spark-BF16.gguf")
    for name in ("mmproj-F16.gguf", "spark.imatrix.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with LLM(str(tmp_path), cache="off"):
        said = capsys.readouterr().err
    assert "mmproj-F16.gguf (a projector of images), spark.imatrix.gguf (calibration data)" in said
