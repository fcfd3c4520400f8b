"""The embedded model with quantized weights, from its folder to the answer, and the reports about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.lazily import torch, torch_files
from tests.weights.quantized import packers
from tests.weights.quantized.packers import Affine
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_path
from twostroke.lab.planner.model_config import read_model
from twostroke.ops.quant.formats import STORED, format_choice

QUESTION = "What is prefill?"


def rounded(values: np.ndarray, bits: int, group: int) -> Affine:
    """The nearest codes, group by group."""
    rows, columns = values.shape
    parts = values.reshape(rows, -1, group)
    low, high = np.minimum(parts.min(axis=2), 0), np.maximum(parts.max(axis=2), 0)
    scales = torch.from_numpy((high - low) / ((1 << bits) - 1)).half()
    step = scales.numpy().astype(np.float64)
    zeros = np.clip(np.rint(-low / step), 1, (1 << bits) - 1).astype(np.int64)
    codes = np.clip(np.rint(parts / step[:, :, None]) + zeros[:, :, None], 0, (1 << bits) - 1).astype(np.int64)
    return Affine(codes.reshape(rows, columns), scales, zeros, np.arange(columns) // group)


def quantized_spark(folder: Path, bits: int, group: int) -> Path:
    """The embedded model as a GPTQ checkpoint; embedding and head do not change."""
    shutil.copytree(spark_path(), folder)
    path = next(folder.glob("*.safetensors"))
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        drawn = rounded(tensors.pop(name).double().numpy(), bits, group)
        parts = packers.gptq(drawn, bits).tensors
        tensors |= {name.removesuffix("weight") + part: values for part, values in parts.items()}
    layers = {name.rpartition(".q_proj")[0] for name in tensors if ".q_proj" in name}
    tensors |= {f"{layer}.{part}_scale": torch.tensor(0.0625) for layer in layers for part in "kv"}
    torch_files.save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": False}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def spark8(tmp_path_factory) -> Path:
    return quantized_spark(tmp_path_factory.mktemp("spark") / "gptq", 8, 64)


def answer(llm: LLM) -> str:
    params = SamplingParams(max_tokens=24, temperature=0.0)
    return llm.chat([{"role": "user", "content": QUESTION}], params).completions[0].text


def test_the_answer_is_the_unquantized_model_s(spark8, tmp_path, capsys):
    with LLM("spark", weights="bf16", cache="off") as llm:
        expected = answer(llm)
    for _ in range(2):  # packed at first, then mapped
        # The default of K and V depends on the level: the generic one keeps them in bf16.
        with LLM(str(spark8), cache=str(tmp_path), kv_format="int8") as llm:
            assert llm.resolved["weights"] == STORED
            assert answer(llm) == expected
    told = capsys.readouterr().err
    assert "GPTQ 8-bit, groups of 64: kept as it is, 9 bits a weight." in told
    assert "scales of K and V are for FP8: K and V in int8 have a scale of their own" in told
    with LLM(str(spark8), cache="off", weights="bf16") as llm:
        assert answer(llm) == expected
    assert len(list((tmp_path / "packed").glob("*.pack"))) == 1


def test_a_plan_knows_the_format_and_the_bytes(spark8):
    found = read_model(str(spark8))
    assert found.quantized == "Quantized weights: GPTQ 8-bit, groups of 64: kept as it is, 9 bits a weight."
    kept = [weight for weight in found.spec.program.weights if weight.stored and weight.stored.kind.is_stored]
    assert len(kept) == 4 * found.spec.num_layers
    assert found.spec.weight_bytes(format_choice(STORED)) < found.spec.weight_bytes(format_choice("bf16"))
