"""Without options, the element type of a checkpoint's matrices decides the format, and vectors are close to float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.retrieval.folders import TEXTS, cosine_error, with_sentence_files, write_encoder, write_reranker
from tests.weights.checkpoints import read_tensors, save
from twostroke.lab.planner.ask import usual_weights
from twostroke.lab.planner.model_config import read_model
from twostroke.llm import LLM

LEAST_COSINE = 0.9999


def say_dtype(folder: Path, word: str | None) -> None:
    """Writes config.json with this dtype; None leaves it out."""
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in config.items() if name not in ("dtype", "torch_dtype")}
    (folder / "config.json").write_text(json.dumps({**config, **({} if word is None else {"torch_dtype": word})}))


def store_as(folder: Path, dtype: str) -> None:
    save(folder / "model.safetensors", read_tensors(folder / "model.safetensors"), dtype)


@pytest.mark.parametrize("word", [None, "bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    ("dtype", "expected"), [("F32", "f32"), ("BF16", "bf16"), ("F16", "bf16")]
)
def test_what_the_tensors_are_decides_whatever_config_says(
    word: str | None, dtype: str, expected: str, tmp_path: Path
) -> None:
    write_encoder(tmp_path, "bert")
    store_as(tmp_path, dtype)
    say_dtype(tmp_path, word)
    assert usual_weights(read_model(str(tmp_path)).spec) == expected
    with LLM(str(tmp_path), context=64, kv_memory=1 << 22, cache="off") as llm:
        assert llm.resolved["weights"] == expected
        assert llm.resolved["kv_format"] == expected


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_vectors_have_the_direction_of_float32(dtype: str, tmp_path: Path) -> None:
    write_encoder(tmp_path, "bert")
    with_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True})
    store_as(tmp_path, dtype)
    say_dtype(tmp_path, None)
    sizes = {"context": 64, "kv_memory": 1 << 22, "cache": "off"}
    with LLM(str(tmp_path), weights="f32", kv_format="f32", **sizes) as llm:
        expected = llm.embed(TEXTS)
    with LLM(str(tmp_path), **sizes) as llm:
        assert cosine_error(llm.embed(TEXTS), expected) < 1 - LEAST_COSINE


def test_a_generating_model_of_float32_tensors_is_not_rounded(tmp_path: Path) -> None:
    write_reranker(tmp_path)  # a model that generates and nothing else
    say_dtype(tmp_path, None)
    assert usual_weights(read_model(str(tmp_path)).spec) == "f32"
    store_as(tmp_path, "BF16")
    assert usual_weights(read_model(str(tmp_path)).spec) == "int8"
