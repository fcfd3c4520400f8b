"""Guesses for prompts with images, by a draft model and by a layer over hidden states: the same bits as without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.speculate.heads.predicted import add_layers
from tests.speculate.test_real_engine import AllOfThem
from tests.vision.folders import smolvlm, write_family
from tests.vision.test_exactness import CONVERSATIONS, PARAMS, bits, opened, prompt_of
from twostroke import LLM

LONGER = replace(PARAMS, max_tokens=40)


@contextmanager
def guessing(folder: Path, way: str) -> Iterator[LLM]:
    """An engine that verifies every guess, whether it pays or not."""
    with opened(folder, speculate=way, max_step_tokens=64) as llm:
        guesser = llm._built.guesser
        guesser._limiter = AllOfThem(guesser._limiter.times)
        yield llm


def compare(folder: Path, way: str) -> tuple[int, int]:
    """Compares answers with and without guesses. Returns how many tokens were guessed, and how many of them right."""
    with opened(folder, speculate="off") as llm:
        prompts = [replace(prompt_of(llm, place), params=LONGER) for place in range(len(CONVERSATIONS))]
        plain = [bits(output) for output in llm.engine.generate(prompts)]
    with guessing(folder, way) as llm:
        images = llm._built.images
        assert images is not None
        for _ in range(2):  # the second time from cached pages
            found = [bits(output) for output in llm.engine.generate(prompts)]
            assert found == plain
        totals = llm._built.guesser.totals
        return totals.guessed, totals.accepted


@pytest.mark.parametrize("family", ["smolvlm", "qwen3-vl", "gemma4-small"])
def test_a_draft_model_that_sees_no_image_changes_no_bit(family: str, tmp_path: Path) -> None:
    """The draft is the same model, without its encoder, so it is right about texts without images."""
    smolvlm(tmp_path) if family == "smolvlm" else write_family(family, tmp_path)
    guessed, accepted = compare(tmp_path, f"draft:{tmp_path}")
    assert guessed > 300 and accepted > 30


def test_the_layer_of_a_checkpoint_changes_no_bit(tmp_path: Path) -> None:
    write_family("qwen3.5", tmp_path)
    path = tmp_path / "config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    config["text_config"]["mtp_num_hidden_layers"] = 1
    path.write_text(json.dumps(config))
    add_layers(tmp_path)
    guessed, _ = compare(tmp_path, "mtp")
    assert guessed > 300


def write_medusa(folder: Path, vocabulary: int, hidden: int) -> None:
    """Three random heads of one layer each."""
    dice = np.random.default_rng(1)
    tensors = {}
    for head in range(3):
        tensors[f"{head}.0.linear.weight"] = dice.normal(size=(hidden, hidden)).astype(np.float32)
        tensors[f"{head}.0.linear.bias"] = dice.normal(size=hidden).astype(np.float32)
    save_file(tensors, folder / "medusa_lm_head.safetensors")
    sizes = {"hidden_size": hidden, "vocab_size": vocabulary, "medusa_num_heads": 3, "medusa_num_layers": 1}
    config = {"architectures": ["MedusaModel"], "model_type": "medusa", "original_lm_head": True, **sizes}
    (folder / "config.json").write_text(json.dumps(config))


def write_eagle(folder: Path, vocabulary: int, hidden: int) -> None:
    """A random layer of EAGLE."""
    dice, inner, own = np.random.default_rng(1), 96, "layers.0."
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (hidden, 2 * hidden)}
    shapes |= {f"{own}self_attn.{name}_proj.weight": (rows, hidden) for name, rows in (("q", 64), ("k", 32))}
    shapes |= {f"{own}self_attn.{name}_proj.weight": (rows, hidden) for name, rows in (("v", 32), ("o", 64))}
    shapes |= {f"{own}mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
    shapes |= {f"{own}mlp.down_proj.weight": (hidden, inner), f"{own}post_attention_layernorm.weight": (hidden,)}
    tensors = {name: (0.1 * dice.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 1}
    sizes = {"hidden_size": hidden, "vocab_size": vocabulary, "intermediate_size": inner, "bias": False}
    usual = {"rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 1024, "hidden_act": "silu"}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **heads, **sizes, **usual}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("family", ["smolvlm", "qwen3-vl"])
@pytest.mark.parametrize("way", ["medusa", "eagle"])
def test_heads_over_hidden_states_change_no_bit(way: str, family: str, tmp_path: Path) -> None:
    """They read states of rows that show images, and of rows to which more rows were added."""
    model, heads = tmp_path / "model", tmp_path / "heads"
    smolvlm(model) if family == "smolvlm" else write_family(family, model)
    heads.mkdir()
    text = json.loads((model / "config.json").read_text())["text_config"]
    write = write_medusa if way == "medusa" else write_eagle
    write(heads, text["vocab_size"], text["hidden_size"])
    guessed, _ = compare(model, f"{way}:{heads}")
    assert guessed > 300
