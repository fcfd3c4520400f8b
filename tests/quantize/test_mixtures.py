"""Mixtures: each expert's matrices are calibrated with the rows that it gets, and served from the codes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import judged, kept
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_path
from twostroke.ops.unpack import unpack
from twostroke.quantize.driver.calibrate import quantize_folder
from twostroke.quantize.driver.methods import FEW, METHODS, ROUNDING
from twostroke.quantize.driver.report import make_report
from twostroke.quantize.driver.texts import CalibrationText, read_texts
from twostroke.runner.folder import read_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.spec.formats import F32
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker

EXPERTS = 5
UNMET = 4
"""The expert that hardly any row of the text gets."""


SIZES = {
    "vocab_size": 4096, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 32, "intermediate_size": 64, "moe_intermediate_size": 64, "num_experts_per_tok": 2,
    "max_position_embeddings": 512, "tie_word_embeddings": True, "initializer_range": 0.3,
}  # fmt: skip


MIXTURE = {"num_experts": EXPERTS, "norm_topk_prob": True, **SIZES}
STACKED: dict[str, tuple[str, dict[str, Any]]] = {
    "granite": ("GraniteMoeConfig", {"num_local_experts": 4, **SIZES}),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 4, "layer_types": ["full_attention"], **SIZES}),
    "llama4": (
        "Llama4TextConfig",
        {
            **{"num_local_experts": 4, "intermediate_size_mlp": 64, "layer_types": ["full_attention"]},
            **{"no_rope_layers": [1], "moe_layers": [0], "attention_chunk_size": 64, "use_qk_norm": False},
            **{**SIZES, "num_experts_per_tok": 1},
        },
    ),
}
"""Experts in stacks. They are rows and columns; transposed, with rows of gate and up in turn and biases; transposed."""


def write(folder: Path, kind: str, fields: dict[str, Any]) -> Path:
    """Writes a random checkpoint of a config of transformers, with spark's tokenizer. It is kept (tests/kept.py)."""

    def make(place: Path) -> dict[str, Any]:
        import torch
        import transformers

        torch.manual_seed(1)
        config = getattr(transformers, kind)(**fields)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        with torch.no_grad():
            for name, values in model.named_parameters():
                if name.endswith("mlp.gate.weight"):
                    values.normal_(0, 0.5)
                elif name.endswith("post_attention_layernorm.weight"):
                    values[0] = 40.0  # the first channel decides, together with the row of the embedding below
                elif name == "model.embed_tokens.weight":
                    values[:, 0] = 1.0
            for name, values in model.named_parameters():
                if name.endswith("mlp.gate.weight"):
                    values[UNMET, 0] = -20.0
        model.save_pretrained(place)
        return {}

    kept.made((kind, sorted(fields.items()), judged.code_of(Path(__file__))), make).unpack(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(spark_path() / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("mixture") / "source", "Qwen3MoeConfig", MIXTURE)


@pytest.fixture(scope="module")
def texts(source) -> CalibrationText:
    return read_texts(None, Tokenizer.from_folder(source), 512, 4096)


@pytest.mark.parametrize("target", METHODS)
def test_experts_are_calibrated_and_served_from_their_codes(target, source, texts, tmp_path):
    quantized = quantize_folder(source, tmp_path / "made", METHODS[target], texts, 1)
    of_experts = {error.module: error for error in quantized.errors if ".experts." in error.module}
    assert len(of_experts) == 3 * EXPERTS and not any(".experts." in module for module in quantized.kept)
    few = [module for module, error in of_experts.items() if error.inputs * FEW < SIZES["hidden_size"]]
    assert 0 < len(few) < len(of_experts)
    ups = [error.inputs for module, error in of_experts.items() if module.endswith("up_proj")]
    assert sum(ups) == 2 * texts.used.size  # each row has two experts
    if target in ("gptq", "int4", "awq"):
        assert [module for module, error in of_experts.items() if error.nearest] == few
        others = [error for module, error in of_experts.items() if module not in few]
        assert sum(e.chosen**2 for e in others) < 0.9 * sum(e.rounding**2 for e in others)
    report = make_report(source, target, quantized, texts, 1)
    assert 0 < report.as_json()["kl_nats"] < 1
    assert report.as_json()["nearest_codes"] == (0 if target == "int8" else len(few))
    assert ("met too few rows" in report.as_text()) == (target != "int8")
    kinds = [weight.stored.kind for weight in read_folder(tmp_path / "made").program.weights if weight.experts]
    assert len(kinds) == 2 and all(kind.is_stored for kind in kinds)
    with LLM(str(tmp_path / "made"), cache="off") as llm:
        answer = llm.generate(["what is prefill"], SamplingParams(max_tokens=3, temperature=0.0))
    assert len(answer[0].completions[0].token_ids) == 3


def test_an_expert_s_moments_are_those_of_its_rows_alone(source, texts, tmp_path):
    """It is calibrated on one run. Its inputs are the rows that the router sends there, computed by PyTorch."""
    one = CalibrationText(texts.used[:1], texts.held_out, "one")
    quantized = quantize_folder(source, tmp_path / "made", ROUNDING, one, 1)

    def ask() -> np.ndarray:
        import torch
        import transformers

        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        with torch.no_grad():
            found = model(torch.from_numpy(one.used.astype(np.int64)), output_router_logits=True)
        return found.router_logits[0].topk(2, dim=-1).indices.numpy()

    chosen = kept.answer(("chosen experts", one.used.tobytes(), *kept.facts_of(source)), ask)
    counts = {
        error.module.split(".experts.")[1].split(".")[0]: error.inputs
        for error in quantized.errors
        if ".experts." in error.module
    }
    assert counts == {str(expert): int((chosen == expert).sum()) for expert in range(EXPERTS)}


@pytest.mark.parametrize(("family", "target"), [("granite", "gptq"), ("gpt-oss", "int8"), ("llama4", "awq")])
def test_experts_in_stacks_are_calibrated_one_by_one(family, target, texts, tmp_path):
    folder = write(tmp_path / "stacks", *STACKED[family])
    few = CalibrationText(texts.used[:2], texts.held_out[:1], "few")
    quantized = quantize_folder(folder, tmp_path / "made", METHODS[target], few, 1)
    of_experts = [error for error in quantized.errors if error.module.rsplit(".", 2)[1].isdigit()]
    assert len(of_experts) == 3 * 4 and all(error.chosen < 0.25 for error in of_experts)
    model = read_folder(tmp_path / "made")
    kinds = [weight.stored.kind for weight in model.program.weights if weight.experts]
    assert len(kinds) == 2 and all(kind.is_stored for kind in kinds)
    report = make_report(folder, target, quantized, few, 1)
    assert 0 < report.as_json()["kl_nats"] < 1


@pytest.mark.parametrize("family", sorted(STACKED))
def test_stacks_read_one_by_one_are_the_same_matrices(family, texts, tmp_path):
    folder = write(tmp_path / "stacks", *STACKED[family])
    found = []
    for apart in (False, True):
        model = read_folder(folder, apart=apart)
        with Checkpoint.open(folder) as checkpoint:
            weights = load_weights(checkpoint, model, lambda weight: F32, NumpyPacker(), None)
            banks = [weight for weight in model.program.weights if weight.experts]
            assert len(banks) == 2
            found.append([unpack(weights.matrix(bank).expert(number)) for bank in banks for number in range(4)])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
