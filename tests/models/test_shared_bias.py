"""Keys with a bias lose the part of it that all positions share. Scores then change by the same number for all keys."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from tests.runner.memories import memory_of, write_rows
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.blocks import attend
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.rope_tables import mean_rotation, rope_table
from twostroke.ops.program.values import VectorForm
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.rope import RopeKind, RopeSpec
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker

PROMPT = list(range(3, 43))
LARGE = 300.0
"""The bias of the slowest pair. Qwen2.5-Coder 1.5B has 354."""


@pytest.mark.parametrize("attention_factor", [1.0, 1.3])
def test_a_mean_rotation_is_the_mean_of_the_table(attention_factor: float) -> None:
    """The formula of a geometric series gives it without a table. A pair that never rotates has means 1 and 0."""
    rope = RopeSpec(RopeKind.PROPORTIONAL, 10_000.0, 16, 4096, attention_factor=attention_factor, turned=6)
    table, (cosines, sines) = rope_table(rope, 600), mean_rotation(rope, 600)
    assert np.allclose(cosines, table.cos.mean(0, np.float64), atol=1e-6)
    assert np.allclose(sines, table.sin.mean(0, np.float64), atol=1e-6)
    assert cosines[-1] == attention_factor and sines[-1] == 0


@pytest.mark.parametrize(
    ("family", "shifts"),
    [
        ("qwen2-biases", True),
        ("xglm", True),
        ("bloom", True),
        ("qwen3-tied", False),
        ("gpt-oss", False),
        ("bert", False),
    ],
)
def test_which_keys_are_shifted(family: str, shifts: bool) -> None:
    """Not shifted are keys without a bias, keys whose scores are compared with a sink, and those of encoders."""
    model = read_model(config_of(family))
    found = [vector for vector in model.program.vectors if vector.form is VectorForm.SHARED_BIAS]
    assert len(found) == shifts * model.num_layers
    assert all(part.name.endswith("bias") for vector in found for part in vector.parts)


def biased(folder: Path, size: float) -> Path:
    """Writes a tiny Qwen2 whose keys have a large bias in the slowest pair of each head, as in published models."""
    folder.mkdir()
    config = {**config_of("qwen2-biases"), "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
    write_random(config, folder)
    tensors = load_file(folder / "model.safetensors")
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for name in [name for name in tensors if name.endswith("k_proj.bias")]:
        heads = tensors[name].reshape(-1, dim).copy()
        heads[:, dim // 2 - 1] = heads[:, dim - 1] = size
        tensors[name] = heads.reshape(-1)
    save_file(tensors, folder / "model.safetensors")
    return folder


def logits(folder: Path, kind: KVKind) -> NDArray[np.float32]:
    """The logits of all positions of the prompt, with weights in float32."""
    model, ops = read_model(json.loads((folder / "config.json").read_text())), CpuOps("generic", 1)
    with Checkpoint.open(folder) as checkpoint:
        weights = load_weights(checkpoint, model, format_choice("f32"), NumpyPacker())
    memory = memory_of(model, weights, kind, MemorySizes(4, 64, 64, 64, state_slots=2))
    found = ops.compile(model.program, memory)(write_rows(memory, PROMPT, 0, np.arange(4, dtype=np.int32))).copy()
    ops.close()
    return found


def test_a_large_bias_costs_keys_of_eight_bits_no_digits(tmp_path: Path) -> None:
    """Without the shift, the step of int8 is 300 / 127 for all elements of a head, and elements of size 1 are lost."""
    plain, large = (biased(tmp_path / str(size), size) for size in (1.0, LARGE))
    usual, found = (
        float(np.abs(logits(folder, KVKind.F32) - logits(folder, KVKind.INT8)).max()) for folder in (plain, large)
    )
    assert 0 < found < 3 * usual


@pytest.mark.parametrize("family", ["qwen2-biases", "qwen2-window-upper-layers", "bloom", "xglm", "qwen2-moe", "glm"])
def test_answers_stay_the_same(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything in float32, logits with and without the shift differ by rounding alone."""
    write_random(config_of(family), tmp_path)
    shifted = logits(tmp_path, KVKind.F32)
    monkeypatch.setattr(attend, "_may_shift_keys", lambda shape, turn: False)
    plain = logits(tmp_path, KVKind.F32)
    assert 0 < np.abs(shifted - plain).max() < 2e-5 * np.ptp(plain)
