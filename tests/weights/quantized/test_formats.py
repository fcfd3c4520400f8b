"""Every format: a tiny checkpoint is read exactly and kept in the expected kind, and its logits are those of its
numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lazily import torch
from tests.models.parity import Loaded, relative_error
from tests.weights.checkpoints import random_tensors, write
from tests.weights.quantized.formats import WAYS, Way
from twostroke.backends.cpu import CpuOps
from twostroke.lab.planner.model_config import read_model
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import read_folder
from twostroke.types.spec.formats import BF16
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.quantized.tensor import QuantizedTensor

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 256, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 384,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LINEAR = ("_proj.weight",)


def make(folder: Path, way: Way, linear: tuple[str, ...] = LINEAR) -> dict[str, np.ndarray]:
    """Writes folder/quantized and folder/plain (the numbers as float32). Returns the numbers as float64.

    linear: the ends of the names of the tensors that are quantized.
    """
    rng, config = np.random.default_rng(0), LLAMA
    plain = {name: torch.from_numpy(values).bfloat16() for name, values in random_tensors(config).items()}
    quantized = dict(plain)
    numbers: dict[str, np.ndarray] = {}
    for name in [name for name in plain if name.endswith(linear)]:
        packed = way.pack(rng, tuple(plain[name].shape))
        del quantized[name]
        quantized |= {f"{name.removesuffix('.weight')}.{part}": values for part, values in packed.tensors.items()}
        numbers[name] = packed.values
    for name, values in plain.items():
        numbers.setdefault(name, values.double().numpy())
    write(folder / "quantized", {**config, **way.config}, quantized)
    write(folder / "plain", config, {name: torch.from_numpy(values).float() for name, values in numbers.items()})
    return numbers


def logits(folder: Path, weights: str, ids: list[int]) -> np.ndarray:
    ops = CpuOps(None, 1)
    loaded = Loaded(folder, ops)
    loaded.model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        loaded.weights = load_weights(checkpoint, loaded.model, format_choice(weights), NumpyPacker())
    found = loaded.run(ids, [len(ids)])
    assert np.array_equal(found, loaded.run(ids, [1] * len(ids)))  # the number of rows in a step changes no bit
    ops.close()
    return found


QUICK = ("gptq-4-order", "ct-nvfp4", "fp8-tiles", "mlx-3", "hqq-4")
"""One for each way of packing; the others are for the whole suite. test_golden.py reads all formats."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WAYS]
)
def test_every_number_and_the_logits(name, tmp_path):
    way = WAYS[name]
    numbers = make(tmp_path, way)
    folder = tmp_path / "quantized"
    model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        found = [each.matrix.words for each in checkpoint.tensors.values() if isinstance(each, QuantizedTensor)]
        assert found == [way.words] * 7
        for tensor, expected in numbers.items():
            if tensor.endswith(LINEAR):
                found = checkpoint.read(tensor)
                assert found.dtype == np.float32
                np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-9, err_msg=tensor)
                some = checkpoint.read_rows(tensor, 5, 23)
                assert np.array_equal(some, found[5:28])
        weights = load_weights(checkpoint, model, format_choice(STORED), NumpyPacker())
        for weight in model.program.weights:
            if not weight.parts[0].name.endswith(LINEAR):
                continue
            assert weight.stored is not None
            assert weight.stored.kind.name == (way.kept or "BF16")
            whole = np.concatenate([numbers[part.name] for part in weight.parts])
            assert (weight.order is not None) == ("act-order" in way.words)
            if weight.order is not None:
                whole = whole[:, checkpoint.read(weight.order.parts[0].name).astype(int)]
            exact = {"rtol": 1e-6, "atol": 2e-7} if way.kept else {"rtol": 0.004, "atol": 1e-9}
            np.testing.assert_allclose(unpack(weights.matrices[weight.key]), whole, **exact, err_msg=weight.key)
    if way.expected:
        (folder / "model.safetensors").rename(folder / "elsewhere")
        by_config = read_model(str(folder)).spec
        (folder / "elsewhere").rename(folder / "model.safetensors")
        pairs = zip(by_config.program.weights, model.program.weights, strict=True)
        assert all(ours.stored == theirs.stored for ours, theirs in pairs if theirs.parts[0].name.endswith(LINEAR))
    ids = np.random.default_rng(5).integers(0, 96, 20).tolist()
    found, expected = logits(folder, STORED, ids), logits(tmp_path / "plain", "f32", ids)
    assert relative_error(found, expected) < (0.03 if way.kept else 0.01)
    assert relative_error(logits(folder, "f32", ids), expected) < 1e-5
    if name == "gptq-4-order":
        assert relative_error(logits(folder, "int8", ids), expected) < 0.03


def test_without_its_formats_a_config_plans_as_bf16(tmp_path):
    make(tmp_path, WAYS["bnb-int8"])
    model = read_folder(tmp_path / "plain")
    assert {weight.stored for weight in model.program.weights} == {None}
    assert format_choice(STORED)(model.program.weights[0]) == BF16
