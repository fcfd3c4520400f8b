"""Without options, the element type of a checkpoint's matrices decides the format, and vectors are close to float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.retrieval.checkpoints import bert_tokenizer, qwen_config, qwen_tokenizer, with_sentence_files, write
from tests.retrieval.test_decoders import TEXTS, cosine_error
from tests.retrieval.test_encoders import ENCODERS, encoder
from twostroke.lab.planner.ask import usual_weights
from twostroke.lab.planner.model_config import read_model
from twostroke.llm import LLM

LEAST_COSINE = 0.9999


def say_dtype(folder: Path, word: str | None) -> None:
    """Writes config.json with this dtype; None leaves it out."""
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in config.items() if name not in ("dtype", "torch_dtype")}
    (folder / "config.json").write_text(json.dumps({**config, **({} if word is None else {"torch_dtype": word})}))


def store_as(folder: Path, dtype: torch.dtype) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, folder / "model.safetensors")


@pytest.mark.parametrize("word", [None, "bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float16, "bf16")]
)
def test_what_the_tensors_are_decides_whatever_config_says(
    word: str | None, dtype: torch.dtype, expected: str, tmp_path: Path
) -> None:
    encoder(tmp_path, "bert")
    store_as(tmp_path, dtype)
    say_dtype(tmp_path, word)
    assert usual_weights(read_model(str(tmp_path)).spec) == expected
    with LLM(str(tmp_path), context=64, kv_memory=1 << 22, cache="off") as llm:
        assert llm.resolved["weights"] == expected
        assert llm.resolved["kv_format"] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vectors_have_the_direction_of_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    config = ENCODERS["bert"]()
    write(tmp_path, getattr(transformers, config.architectures[0]), config, bert_tokenizer())
    with_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True})
    store_as(tmp_path, dtype)
    say_dtype(tmp_path, None)
    sizes = {"context": 64, "kv_memory": 1 << 22, "cache": "off"}
    with LLM(str(tmp_path), weights="f32", kv_format="f32", **sizes) as llm:
        expected = llm.embed(TEXTS)
    with LLM(str(tmp_path), **sizes) as llm:
        assert cosine_error(llm.embed(TEXTS), expected) < 1 - LEAST_COSINE


def test_a_generating_model_of_float32_tensors_is_not_rounded(tmp_path: Path) -> None:
    write(tmp_path, transformers.Qwen3ForCausalLM, qwen_config(), qwen_tokenizer())
    say_dtype(tmp_path, None)
    assert usual_weights(read_model(str(tmp_path)).spec) == "f32"
    store_as(tmp_path, torch.bfloat16)
    assert usual_weights(read_model(str(tmp_path)).spec) == "int8"
