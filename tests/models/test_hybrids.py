"""Families with states next to attention: published sizes, and fields that are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.models.families.stored import config_of
from tests.models.published.states import PUBLISHED
from twostroke.models.common.registry import read_model
from twostroke.models.states.minimax import FIRST_NAMES
from twostroke.types.errors import ModelError
from twostroke.types.spec.formats import KVKind


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_have_the_published_sizes(name: str) -> None:
    config, parameters, kv_bytes, state_bytes = PUBLISHED[name]
    model = read_model(config)
    assert model.parameters() == parameters
    assert model.kv_bytes_per_token(KVKind.BF16) == kv_bytes
    assert model.state_bytes() == state_bytes


@pytest.mark.parametrize(
    ("name", "active"), [("Qwen/Qwen3-Next-80B-A3B-Instruct", 3.875), ("ai21labs/Jamba-v0.1", 12.11)]
)
def test_a_token_meets_few_of_the_experts(name: str, active: float) -> None:
    assert read_model(PUBLISHED[name][0]).program.active_parameters / 1e9 == pytest.approx(active, rel=0.005)


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("LiquidAI/LFM2-350M", {"layer_types": ["conv"] * 15}, "layer_types"),
        ("LiquidAI/LFM2-350M", {"layer_types": ["convolution"] * 16}, "layer_types"),
        ("LiquidAI/LFM2-350M", {"conv_L_cache": 1}, "conv_L_cache"),
        ("Qwen/Qwen3.5-9B", {"linear_num_key_heads": 5}, "linear_num_key_heads"),
        ("Qwen/Qwen3.5-9B", {"linear_key_head_dim": 1024}, "linear_key_head_dim"),
        ("Qwen/Qwen3.5-9B", {"hidden_act": "gelu"}, "hidden_act"),
        ("tiiuae/Falcon-H1-0.5B-Base", {"mamba_n_heads": 7}, "mamba_n_heads"),
        ("tiiuae/Falcon-H1-0.5B-Base", {"attention_bias": True}, "attention_bias"),
        ("tiiuae/Falcon-H1-0.5B-Base", {"ssm_multipliers": [1.0] * 4}, "ssm_multipliers"),
        ("ibm-ai-platform/Bamba-9B", {"mamba_d_head": 63}, "mamba_n_heads"),
        ("ibm-ai-platform/Bamba-9B", {"mamba_n_groups": 3}, "mamba_n_groups"),
        ("ai21labs/Jamba-v0.1", {"attn_layer_offset": 8}, "attn_layer_offset"),
        ("nvidia/Nemotron-H-8B-Base-8K", {"hybrid_override_pattern": "M*-x" * 13}, "hybrid_override_pattern"),
        ("nvidia/Nemotron-H-8B-Base-8K", {"hybrid_override_pattern": "M*-E" * 13, "n_group": 3}, "n_group"),
        ("nvidia/Nemotron-H-8B-Base-8K", {"num_hidden_layers": 51}, "num_hidden_layers"),
        ("nvidia/Nemotron-H-8B-Base-8K", {"n_groups": 3}, "n_groups"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {"mla_use_nope": False}, "mla_use_nope"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {"num_hidden_layers": 28}, "kda_layers"),
        ("MiniMaxAI/MiniMax-Text-01", {"attn_type_list": [0, 2] * 40}, "attn_type_list"),
        ("MiniMaxAI/MiniMax-Text-01", {"attn_type_list": None}, "rotary_dim"),
        ("MiniMaxAI/MiniMax-Text-01", {"postnorm": False}, "postnorm"),
        ("ibm-granite/granite-4.0-h-micro", {"num_local_experts": 2000}, "num_local_experts"),
    ],
)
def test_what_is_impossible_or_not_there_is_named(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError, match=field):
        read_model({**PUBLISHED[name][0], **changes})


def test_the_published_names_of_minimax_mean_what_those_of_transformers_do() -> None:
    config = config_of("minimax")
    named = {own: config[usual] for own, usual in FIRST_NAMES.items()}
    kinds = {"attn_type_list": [int(each == "full_attention") for each in config["layer_types"]], "postnorm": True}
    absent = ("layer_types", "model_type", "architectures", *FIRST_NAMES.values())
    kept = {name: value for name, value in config.items() if name not in absent}
    published = {**kept, **named, **kinds, "architectures": ["MiniMaxText01ForCausalLM"]}
    first, second = (
        re.sub(" object at 0x[0-9a-f]+", "", str(read_model(each).program)) for each in (published, config)
    )
    assert first == second
