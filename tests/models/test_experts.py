"""Families with experts: published sizes, stacks of experts, fields that are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests import judged
from tests.models.families.stored import write_checkpoint
from tests.models.parity import Loaded
from tests.models.published.experts import BY_HAND, LONG, PUBLISHED, ROUGHLY
from twostroke.models.common.registry import read_model
from twostroke.ops.reference import ReferenceOps
from twostroke.types.errors import ModelError
from twostroke.types.spec.formats import KVKind

COUNTED = ("openai/gpt-oss-20b", "Qwen/Qwen1.5-MoE-A2.7B", "LiquidAI/LFM2-8B-A1B", "allenai/OLMoE-1B-7B-0924")
"""Models that transformers makes quickly without memory."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_have_the_published_sizes(name: str) -> None:
    config, parameters, active, kv_bytes, state_bytes = PUBLISHED[name]
    model = read_model(config)
    allowed = ROUGHLY.get(name, 0.005 * parameters)
    assert model.parameters() / 1e9 == pytest.approx(parameters, abs=allowed)
    used = model.program.active_parameters
    embedding = model.vocab_size * model.hidden_size
    if active is not None:
        digit = 1.0 if active == int(active) else 0.1
        assert min(abs(each / 1e9 - active) for each in (used, used - embedding)) < digit
    assert model.kv_bytes_per_token(KVKind.BF16) == kv_bytes
    assert model.state_bytes() == state_bytes


@pytest.mark.parametrize(("name", "active"), [("openai/gpt-oss-20b", 3.61), ("openai/gpt-oss-120b", 5.13)])
def test_a_token_uses_what_the_page_counts_without_the_embedding(name: str, active: float) -> None:
    config = PUBLISHED[name][0]
    used = read_model(config).program.active_parameters - config["vocab_size"] * config["hidden_size"]
    assert used / 1e9 == pytest.approx(active, rel=0.005)


@pytest.mark.parametrize("name", BY_HAND)
def test_parameters_are_those_counted_by_hand(name: str) -> None:
    assert read_model(PUBLISHED[name][0]).parameters() == BY_HAND[name]


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_those_that_transformers_counts(name: str) -> None:
    config = PUBLISHED[name][0]

    def count() -> list[int]:
        import torch
        import transformers

        judge_class = getattr(transformers, config["architectures"][0])
        with torch.device("meta"):
            made = judge_class(judge_class.config_class(**{**config, "architectures": None}))
        buffers = sum(buffer.numel() for key, buffer in made.named_buffers() if key.endswith("bias"))
        return [made.num_parameters(), buffers]

    parameters, buffers = judged.said(f"parameters: {name}", [config], count)
    assert read_model(config).parameters() == parameters + buffers


def test_stacks_of_experts_and_a_tensor_for_each_are_one_model(tmp_path: Path) -> None:
    """Qwen3.5's files have stacks; transformers writes a tensor for each expert."""
    write_checkpoint("qwen3.5-moe", tmp_path)
    ids = list(range(20))
    each = Loaded(tmp_path, ReferenceOps()).run(ids, [20])
    tensors = load_file(tmp_path / "model.safetensors")
    experts = sorted({key.split(".experts.")[0] for key in tensors if ".experts." in key})
    for begin in experts:
        parts = {name: [tensors.pop(f"{begin}.experts.{e}.{name}.weight") for e in range(6)] for name in NAMES}
        both = [np.concatenate(pair) for pair in zip(parts["gate_proj"], parts["up_proj"], strict=True)]
        tensors[f"{begin}.experts.gate_up_proj"] = np.stack(both)
        tensors[f"{begin}.experts.down_proj"] = np.stack(parts["down_proj"])
    assert len(experts) == 4
    save_file(tensors, tmp_path / "model.safetensors")
    assert np.array_equal(Loaded(tmp_path, ReferenceOps()).run(ids, [20]), each)
    begin = experts[0]
    tensors[f"{begin}.experts.down_proj"] = tensors[f"{begin}.experts.down_proj"][:5].copy()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"experts\.5\.down_proj"):
        Loaded(tmp_path, ReferenceOps())


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_experts_of_gpt_oss_are_read_from_their_blocks(tmp_path: Path) -> None:
    """OpenAI publishes them like this: two floats of four bits in a byte, and a power of two for 32 of them."""
    write_checkpoint("gpt-oss-small", tmp_path)
    tensors, random = load_file(tmp_path / "model.safetensors"), np.random.default_rng(3)
    table, blocks = np.array(E2M1 + [-each for each in E2M1], np.float32), {}
    for name in [key for key in tensors if key.endswith("experts.gate_up_proj") or key.endswith("experts.down_proj")]:
        count, columns, rows = tensors[name].shape
        codes = random.integers(0, 256, (count, rows, columns // 32, 16), np.uint8)
        scales = random.integers(122, 126, (count, rows, columns // 32), np.uint8)
        floats = np.stack((table[codes & 15], table[codes >> 4]), -1).reshape(count, rows, columns // 32, 32)
        values = (floats * np.exp2(scales.astype(np.float32) - 127)[..., None]).reshape(count, rows, columns)
        tensors[name] = np.ascontiguousarray(values.transpose(0, 2, 1))
        blocks |= {name + "_blocks": codes, name + "_scales": scales}
    ids, path = list(range(30)), tmp_path / "model.safetensors"
    save_file(tensors, path)
    plain = Loaded(tmp_path, ReferenceOps()).run(ids, [30])
    save_file({name: each for name, each in tensors.items() if name + "_blocks" not in blocks} | blocks, path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}}))
    assert np.array_equal(Loaded(tmp_path, ReferenceOps()).run(ids, [30]), plain)


NAMES = ("gate_proj", "up_proj", "down_proj")
GLM, NANO, OSS = "zai-org/GLM-4.5-Air", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "openai/gpt-oss-20b"
SCOUT, PHI = "meta-llama/Llama-4-Scout-17B-16E-Instruct", "microsoft/Phi-3.5-MoE-instruct"
MINIMAX, HUNYUAN, ERNIE = "MiniMaxAI/MiniMax-M2", "tencent/Hunyuan-A13B-Instruct", "baidu/ERNIE-4.5-21B-A3B-PT"


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        (GLM, {"n_group": 5}, "n_group"),
        (GLM, {"n_group": 128}, "n_group"),
        (GLM, {"topk_group": 2}, "topk_group"),
        (GLM, {"n_group": 64, "num_experts_per_tok": 3}, "num_experts_per_tok"),
        (GLM, {"scoring_func": "softmax"}, "scoring_func"),
        (GLM, {"hidden_act": "gelu"}, "hidden_act"),
        (GLM, {"n_routed_experts": 64}, "num_experts"),
        (GLM, {"routed_scaling_factor": 0.0}, "routed_scaling_factor"),
        (NANO, {"n_shared_experts": 2}, "n_shared_experts"),
        (NANO, {"moe_latent_size": 4096}, "moe_latent_size"),
        (OSS, {"swiglu_alpha": 1.0}, "swiglu_alpha"),
        (OSS, {"swiglu_limit": 0.0}, "swiglu_limit"),
        (OSS, {"layer_types": ["full_attention"] * 23}, "layer_types"),
        (OSS, {"num_experts_per_tok": 33}, "num_experts_per_tok"),
        ("allenai/OLMoE-1B-7B-0924", {"clip_qkv": 0.0}, "clip_qkv"),
        (MINIMAX, {"use_qk_norm": False}, "use_qk_norm"),
        (MINIMAX, {"attn_type_list": [1, 0] * 31}, "attn_type_list"),
        (MINIMAX, {"shared_intermediate_size": 512}, "shared_intermediate_size"),
        (HUNYUAN, {"use_cla": True}, "use_cla"),
        (HUNYUAN, {"moe_topk": [8] * 31 + [4]}, "moe_topk"),
        (HUNYUAN, {"num_shared_expert": 2}, "num_shared_expert"),
        (ERNIE, {"use_bias": True}, "use_bias"),
        (SCOUT, {"no_rope_layers": [1, 0]}, "no_rope_layers"),
        (SCOUT, {"layer_types": ["sliding_attention"] * 48}, "layer_types"),
        (SCOUT, {"attention_chunk_size": -1}, "attention_chunk_size"),
        (PHI, {"num_experts_per_tok": 3}, "num_experts_per_tok"),
        (PHI, {"rope_scaling": {**LONG, "long_mscale": 1.3}}, "long_mscale"),
        ("hpcai-tech/grok-1", {"hidden_act": "silu"}, "hidden_act"),
        ("hpcai-tech/grok-1", {"max_attn_value": 0.0}, "max_attn_value"),
        ("LiquidAI/LFM2-8B-A1B", {"num_experts_per_tok": 40}, "num_experts_per_tok"),
    ],
)
def test_what_is_impossible_or_not_there_is_named(name: str, changes: dict[str, Any], field: str) -> None:
    config = PUBLISHED[name][0]
    if "text_config" in config:
        changes = {"text_config": {**config["text_config"], **changes}}
    with pytest.raises(ModelError, match=field):
        read_model({**config, **changes})


def test_every_count_is_a_number_of_a_page() -> None:
    assert set(ROUGHLY) <= set(PUBLISHED)
    assert all(math.isfinite(row[1]) and (row[2] or 0) < row[1] for row in PUBLISHED.values())
