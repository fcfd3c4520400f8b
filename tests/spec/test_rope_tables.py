"""Every kind of rope scaling, compared with transformers' own initialisation functions and its rotary module."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import kept
from twostroke.backends.cpu.library import built_levels, runnable_levels
from twostroke.backends.cpu.rotary_rows import native_rows
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.rope_tables import CHUNK_ANGLES, inverse_frequencies, rope_table
from twostroke.ops.program.model import Model
from twostroke.types.spec.rope import RopeSpec

HALF = 32
POSITIONS, TABLE = (256, 512, 513, 2048, 6000), 512
KINDS = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "default-theta": {"rope_type": "default", "rope_theta": 1e6},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512, "rope_theta": 500_000.0,
    },
    "llama3-32x": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512, "rope_theta": 500_000.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    "yarn-no-truncate": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "truncate": False,
    },
    "yarn-mscale": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 512, "mscale": 0.7,
        "mscale_all_dim": 1.0, "beta_fast": 64, "beta_slow": 2,
    },
    "yarn-attention-factor": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 0.75,
    },
    "yarn-original-from-config": {"rope_type": "yarn", "factor": 2.0},
    "longrope": {
        "rope_type": "longrope", "original_max_position_embeddings": 512, "factor": 4.0,
        "short_factor": [1.0 + 0.01 * i for i in range(HALF)], "long_factor": [1.5 + 0.2 * i for i in range(HALF)],
    },
    "longrope-no-factor": {
        "rope_type": "longrope", "original_max_position_embeddings": 512,
        "short_factor": [1.0] * HALF, "long_factor": [4.0] * HALF,
    },
}  # fmt: skip


def rope_of(model: Model) -> RopeSpec:
    """The only table of rotations of a model."""
    (rope,) = model.program.ropes
    return rope.spec


@cache
def judged(kind: str) -> tuple[Model, dict[str, np.ndarray]]:
    """The model of a Llama's config, and what transformers gives for it. `frequencies N` has the frequencies for N
    positions, and then the factor of attention. There are cos and sin of TABLE positions, too."""

    def ask(folder: Path) -> dict[str, Any]:
        import torch
        import transformers
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        config = transformers.LlamaConfig(
            hidden_size=4 * HALF, num_attention_heads=2, num_hidden_layers=1, max_position_embeddings=2048,
            rope_parameters={"rope_theta": 10_000.0, **KINDS[kind]},
        )  # fmt: skip
        found = {"config": kept.text({**config.to_dict(), "architectures": ["LlamaForCausalLM"]})}
        word = config.rope_parameters["rope_type"]
        for positions in POSITIONS:
            if word == "default":
                frequencies, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
            else:
                frequencies, factor = ROPE_INIT_FUNCTIONS[word](config, torch.device("cpu"), seq_len=positions)
            found[f"frequencies {positions}"] = np.append(frequencies.double().numpy(), factor)
        cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(TABLE)[None])
        return {**found, "cos": cos[0, :, :HALF].numpy(), "sin": sin[0, :, :HALF].numpy()}

    found = kept.made(("rope tables", KINDS[kind], HALF, POSITIONS, TABLE), ask).answers()
    return read_model(kept.value_of(found["config"])), found


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_agree_with_transformers(kind, positions):
    spec, found = judged(kind)
    *expected, attention_factor = found[f"frequencies {positions}"]
    np.testing.assert_allclose(inverse_frequencies(rope_of(spec), positions), expected, rtol=2e-6)
    assert rope_of(spec).attention_factor == pytest.approx(attention_factor, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_agree_with_the_rotary_module(kind):
    spec, found = judged(kind)
    table = rope_table(rope_of(spec), TABLE)
    assert table.cos.shape == table.sin.shape == (TABLE, HALF)
    assert table.cos.dtype == table.sin.dtype == np.float32
    # transformers multiplies position and frequency in float32, so up to 512 * 2^-24 radians of error are its own.
    np.testing.assert_allclose(table.cos, found["cos"], atol=1e-4)
    np.testing.assert_allclose(table.sin, found["sin"], atol=1e-4)


def test_chunked_tables_are_the_same_at_every_position():
    spec, _ = judged("yarn")
    chunk = CHUNK_ANGLES // HALF
    long = rope_table(rope_of(spec), 2 * chunk + 300)
    for position in (0, 1, chunk - 1, chunk, 2 * chunk, 2 * chunk + 299):
        angles = position * inverse_frequencies(rope_of(spec), 2 * chunk + 300)
        expected = np.cos(angles) * rope_of(spec).attention_factor
        assert np.array_equal(long.cos[position], expected.astype(np.float32))


@pytest.mark.parametrize("level", [level for level in runnable_levels() if level in built_levels()])
@pytest.mark.parametrize("kind", KINDS)
def test_native_rows_have_the_same_bits(level: str, kind: str) -> None:
    rope, write = rope_of(judged(kind)[0]), native_rows(level)
    assert write is not None
    narrow = rope if rope.long_factors else replace(rope, rotary_dim=6)
    for each in (rope, replace(rope, back=7, undone=True), narrow, replace(rope, growth=0.1)):
        for rates in (None, np.linspace(0, 1, each.rotary_dim // 2, dtype=np.float32)):
            ours, reference = (rope_table(each, 700, rates, way) for way in (write, None))
            assert ours.cos.tobytes() == reference.cos.tobytes()
            assert ours.sin.tobytes() == reference.sin.tobytes()
    with pytest.raises(ValueError, match="between 0 and"):
        rope_table(rope, 2, np.full(rope.rotary_dim // 2, 60, np.float32), write)


def test_partial_rotation_shortens_the_table():
    spec, _ = judged("default")
    assert rope_table(replace(rope_of(spec), rotary_dim=HALF), 8).cos.shape == (8, HALF // 2)
