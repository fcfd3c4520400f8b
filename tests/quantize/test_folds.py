"""Scales that something before a product absorbs: the model computes the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.quantize.folders import small_folder
from tests.weights.checkpoints import read_tensors, save
from twostroke.quantize.driver.folds import divided_vector
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.methods import METHODS
from twostroke.quantize.driver.products import stage_products, tensor_users
from twostroke.quantize.driver.solve_stage import SolvedStage, StageInputs, scale_stage

IDS = [np.random.default_rng(0).integers(0, 4096, 40).astype(np.int32)]


def powers(matrix, moments, layout, group):
    return np.exp2(np.random.default_rng(matrix.shape[1]).integers(-3, 4, matrix.shape[1])).astype(np.float32)


def outputs(folder: Path, scaled: bool) -> tuple[np.ndarray, int, int]:
    """The logits of all stages after one another, and how many matrices and vectors were changed."""
    given, matrices, vectors = [], 0, 0
    with staged_folder(folder, 1) as staged:
        for index, stage in enumerate(staged.stages):
            found, users = SolvedStage(), tensor_users(staged.model.plain)
            products = stage_products(stage, staged.model.plain, users)
            if scaled:
                method = replace(METHODS["int4"], scales=powers)
                scale_stage(staged, index, StageInputs(IDS, given), products, method, 32, found)
            matrices, vectors = matrices + len(found.factors), vectors + len(found.changed)
            weights = staged.weights(index, found.over(staged.checkpoint))
            if index == len(staged.stages) - 1:
                rows = [rows.copy() for rows in staged.logits(weights, IDS[0], given[0])]
                return np.concatenate(rows), matrices, vectors
            given = staged.run(index, weights, IDS, given)
    raise AssertionError("no last stage")


@pytest.mark.parametrize(
    ("architecture", "vectors", "matrices"),
    [
        ("LlamaForCausalLM", 2, 6),
        ("Qwen3ForCausalLM", 2, 6),
        ("GemmaForCausalLM", 2, 6),
        ("Olmo2ForCausalLM", 0, 2),  # norms come after the blocks, so only down's inputs can be scaled
    ],
)
def test_scaled_models_say_the_same(architecture, vectors, matrices, tmp_path):
    more = {"hidden_act": "gelu_pytorch_tanh"} if architecture.startswith("Gemma") else {}
    folder = (
        olmo2(tmp_path)
        if "Olmo" in architecture
        else small_folder(tmp_path / "model", architectures=[architecture], **more)
    )
    plain, _, _ = outputs(folder, False)
    found, changed, norms = outputs(folder, True)
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=2e-4 * np.abs(plain).max())
    assert (norms, changed) == (2 * vectors, 2 * matrices)


def olmo2(place: Path) -> Path:
    """The same tensors, and norms of the whole q, of the whole k, and after each block."""
    folder = small_folder(place / "model", architectures=["Olmo2ForCausalLM"])
    for file in folder.glob("*.safetensors"):
        tensors = read_tensors(file)
        for name in [name for name in tensors if name.endswith("input_layernorm.weight")]:
            tensors[name.replace("input_layernorm", "post_feedforward_layernorm")] = tensors.pop(name)
        save(file, tensors, "BF16")
    layers = range(2)
    extra = {
        f"model.layers.{layer}.self_attn.{name}.weight": np.ones(rows, np.float32)
        for layer in layers
        for name, rows in (("q_norm", 64), ("k_norm", 32))
    }
    save(folder / "extra.safetensors", extra)
    return reindexed(folder)


def reindexed(folder: Path) -> Path:
    import json

    from safetensors import safe_open

    weight_map = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "np") as opened:
            weight_map |= dict.fromkeys(opened.keys(), file.name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def test_norms_that_add_one_when_they_are_loaded_are_divided_with_it():
    stored = np.array([0.5, -0.25, 3], np.float32)
    scales = np.array([2, 0.5, 4], np.float32)
    np.testing.assert_allclose(divided_vector(stored, 1, scales) + 1, (stored + 1) / scales, rtol=1e-6)
