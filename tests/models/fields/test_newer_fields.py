"""Fields of the families that came late: their own names in published configs, and values that are refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.families.stored import config_of, write_checkpoint
from tests.models.parity import Loaded
from twostroke.models.common.registry import read_model
from twostroke.ops.reference import ReferenceOps
from twostroke.types.errors import ModelError


def program_of(config: dict[str, Any]) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", str(read_model(config).program))


def changed(family: str, **changes: Any) -> dict[str, Any]:
    """The family's config, with one field changed; a field of its language model where it has one inside."""
    config = config_of(family)
    if "text_config" not in config:
        return {**config, **changes}
    return {**config, "text_config": {**config["text_config"], **changes}}


def test_published_names_of_mimo_mean_what_transformers_names_mean() -> None:
    config = config_of("mimo-v2-flash")
    own = {name: value for name, value in config.items() if name not in ("layer_types", "mlp_layer_types")}
    own |= {"hybrid_layer_pattern": [0, 1, 1, 0], "moe_layer_freq": [0, 1, 1, 1], "n_group": None}
    own |= {"sliding_window_size": config["sliding_window"] - 1, "sliding_window": 128}
    assert program_of(own) == program_of(config)


def test_glm_5_3_flash_has_as_many_positions_as_its_index_sees_whole() -> None:
    assert read_model(changed("glm-5.3-flash", index_topk=72)).max_positions == 72 + 8 - 1
    linear = changed("glm-5.3-flash", index_topk=72, layer_types=["linear_attention"] * 4)
    assert read_model(linear).max_positions == 256


def test_published_groups_of_glm_5_3_flash_mean_what_transformers_fields_mean() -> None:
    config = config_of("glm-5.3-flash")
    own = {name: value for name, value in config["text_config"].items() if not name.startswith("linear_")}
    group = {"head_dim": 12, "num_heads": 3, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0}
    assert program_of({**config, "text_config": {**own, "linear_attn_config": group}}) == program_of(config)


def test_minimax_m3_has_as_many_positions_as_its_sparse_layers_see_whole() -> None:
    config = config_of("minimax-m3")
    blocks = {"sparse_topk_blocks": 3, "sparse_block_size": 16, "sparse_attention_freq": [0, 1, 1]}
    own = {name: value for name, value in config["text_config"].items() if "layer_types" not in name}
    published = {**own, "sparse_attention_config": blocks, "moe_layer_freq": [0, 1, 1], "hidden_act": "swigluoai"}
    assert program_of({**config, "text_config": published}) == program_of(config)
    longest = {
        "sparse": read_model({**config, "text_config": published}).max_positions,
        "whole": read_model({**config, "text_config": {**own, "layer_types": ["full_attention"] * 3}}).max_positions,
    }
    assert longest == {"sparse": 3 * 16, "whole": config["text_config"]["max_position_embeddings"]}


def test_published_names_of_step_mean_what_transformers_names_mean() -> None:
    """The lists continue with the layers that predict further tokens. Step 3.5 has the language model's fields
    alone."""
    config = config_of("step-3.7")["text_config"]
    left_out = ("layer_types", "rope_parameters", "mlp_layer_types", "num_sliding_attention_heads", "per_layer_config")
    own = {name: value for name, value in config.items() if name not in left_out}
    own |= {"num_attention_groups": own.pop("num_key_value_heads"), "moe_num_experts": own.pop("n_routed_experts")}
    own |= {"moe_top_k": own.pop("num_experts_per_tok"), "share_expert_dims": own.pop("share_expert_dim")}
    own |= {"num_nextn_predict_layers": 1, "layer_types": [*config["layer_types"], "sliding_attention"]}
    own |= {"rope_theta": [500000.0, 10000.0] * 2 + [10000.0], "partial_rotary_factors": [0.5, 1.0] * 2 + [1.0]}
    own |= {"moe_layers_enum": "1,2,4", "attention_other_setting": {"num_attention_heads": 6, "head_dim": 24}}
    own |= {name: [*config[name], 0.0] for name in ("swiglu_limits", "swiglu_limits_shared")}
    own |= {"use_head_wise_attn_gate": True, "zero_centered": True, "architectures": ["Step3p5ForCausalLM"]}
    assert program_of(own) == program_of(config_of("step-3.7"))


def test_nemotron_omni_has_its_language_model_in_a_group_of_one_of_two_names() -> None:
    config = config_of("nemotron-omni")
    published = {name: value for name, value in config.items() if name != "text_config"}
    assert program_of({**published, "llm_config": config["text_config"]}) == program_of(config)


def test_qwen4_exp_has_as_many_positions_as_its_index_sees_whole() -> None:
    assert read_model(changed("qwen4-exp", indexer_budget=64)).max_positions == 64 + 8 - 1
    linear = changed("qwen4-exp", layer_types=["linear_attention"] * 4)
    assert read_model(linear).max_positions == 256


def test_published_names_of_dots_mean_what_transformers_names_mean() -> None:
    config = config_of("dots3")
    left_out = ("per_layer_config", "rope_parameters", "sliding_window", "mlp_layer_types", "layer_types")
    own = {name: value for name, value in config.items() if name not in left_out}
    own |= {"use_dsa": True, "layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window_size": 20}
    own |= {"rope_theta": 8e7, "swa_rope_theta": 5e4, "moe_layer_freq": [0, 1, 1, 1], "num_local_experts": None}
    own |= {"swa_num_attention_heads": 6, "swa_num_key_value_heads": 6, "swa_q_lora_rank": 20, "swa_kv_lora_rank": 40}
    own |= {"swa_head_dim": 28, "swa_qk_nope_head_dim": 16, "swa_v_head_dim": 20, "first_k_dense_replace": 1}
    own |= {"moe_shared_expert_intermediate_size": own.pop("shared_experts_intermediate_size")}
    assert config["mlp_layer_types"] == ["dense", "sparse", "sparse", "sparse"]
    assert program_of(own) == program_of(config)


def test_groups_of_zaya_may_have_a_kind_beside_them() -> None:
    """The config is that of Zyphra/ZAYA1-8B, where transformers removes it."""
    config = config_of("zaya-windows")
    groups = {"hybrid": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5}}
    groups |= {"hybrid_sliding": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    assert program_of({**config, "rope_parameters": {**groups, "rope_type": "default"}}) == program_of(config)


def test_layers_of_one_stack_of_hrm_text_are_counted_or_all_runs() -> None:
    """transformers writes the layers of all runs. Older files have those of one stack."""
    config = config_of("hrm-text")
    assert (config["num_layers_per_stack"], config["num_hidden_layers"]) == (2, 2 * 2 * 3)
    older = {name: value for name, value in config.items() if name != "num_layers_per_stack"}
    assert program_of({**older, "num_hidden_layers": 2}) == program_of(config)


def test_doge_has_as_many_positions_as_need_no_choice_among_keys() -> None:
    assert read_model(changed("doge", keep_window_size=48)).max_positions == 48


def test_layers_of_zamba_are_listed_or_counted() -> None:
    counted = changed("zamba", layers_block_type=None, attn_layer_period=2, attn_layer_offset=0)
    listed = changed("zamba", layers_block_type=["mamba", "mamba", "hybrid", "hybrid"])
    assert program_of(counted) == program_of(listed)


def test_layers_of_gpt_neo_are_said_in_pairs_or_one_by_one() -> None:
    config = config_of("gpt-neo")
    listed = {**config, "attention_types": None, "attention_layers": ["global", "local"] * 2}
    assert program_of(listed) == program_of(config)


def test_a_bias_for_the_choice_of_experts_that_is_absent_is_zero(tmp_path: Path) -> None:
    """The files of skt/A.X-K1 lack it, and transformers loads them."""
    write_checkpoint("axk1", tmp_path)
    file, ids = tmp_path / "model.safetensors", list(range(20))
    tensors = load_file(file)
    biases = [name for name in tensors if name.endswith("e_score_correction_bias")]
    assert len(biases) == 2
    save_file({name: each * (name not in biases) for name, each in tensors.items()}, file)
    zeroed = Loaded(tmp_path, ReferenceOps()).run(ids, [20])
    save_file({name: each for name, each in tensors.items() if name not in biases}, file)
    assert np.array_equal(Loaded(tmp_path, ReferenceOps()).run(ids, [20]), zeroed)


@pytest.mark.parametrize(
    ("family", "changes", "named"),
    [
        ("recurrent-gemma", {"block_types": ["recurrent", "mamba"]}, "block_types"),
        ("recurrent-gemma", {"lru_width": 66}, "lru_width"),
        ("recurrent-gemma", {"embeddings_scale_by_sqrt_dim": False}, "embeddings_scale_by_sqrt_dim"),
        ("zamba", {"attention_hidden_size": 64}, "attention_hidden_size"),
        ("zamba", {"hidden_mamba_act": "gelu"}, "hidden_mamba_act"),
        ("zamba", {"n_mamba_heads": 3}, "n_mamba_heads"),
        ("zamba", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("zamba", {"layers_block_type": ["mamba"] * 4}, "layers_block_type"),
        ("diffllama", {"num_key_value_heads": 1}, "num_key_value_heads"),
        ("doge", {"is_moe": True}, "is_moe"),
        ("mimo-v2-flash", {"layer_types": None, "hybrid_layer_pattern": [0, 2, 1, 0]}, "hybrid_layer_pattern"),
        ("mimo-v2-flash", {"num_key_value_heads": 4}, "num_key_value_heads"),
        ("mimo-v2-flash", {"v_head_dim": 4096}, "v_head_dim"),
        ("mimo-v2-flash", {"scoring_func": "softmax"}, "scoring_func"),
        ("cohere2-moe", {"expert_selection_fn": "argmax"}, "expert_selection_fn"),
        ("cohere2-moe", {"shared_expert_combination_strategy": "max"}, "shared_expert_combination_strategy"),
        ("cohere2-moe", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ("mellum", {"mlp_layer_types": ["dense", "thick", "dense", "dense"]}, "mlp_layer_types"),
        ("mllama", {"cross_attention_layers": [7]}, "cross_attention_layers"),
        ("mllama", {"cross_attention_layers": [0, 1, 2, 3]}, "cross_attention_layers"),
        ("mllama", {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ("gpt-bigcode", {"add_cross_attention": True}, "add_cross_attention"),
        ("gpt-neo", {"attention_layers": None, "attention_types": [["global", "x"]]}, "attention_types"),
        ("gpt-neo", {"attention_layers": ["global"]}, "attention_types"),
        ("axk1", {"scoring_func": "softmax"}, "scoring_func"),
        ("nanochat", {"hidden_act": "no-function"}, "hidden_act"),
        ("flint", {"layer_types": ["full_attention"]}, "layer_types"),
        ("flint", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("lfm3", {"layer_types": ["conv", "mamba", "conv", "conv", "conv"]}, "layer_types"),
        ("lfm3", {"sliding_window": None}, "sliding_window"),
        ("codegen", {"n_head": 2}, "n_head"),
        ("step-3.7", {"swiglu_limits": [0.0]}, "swiglu_limits"),
        ("step-3.7", {"mlp_bias": True}, "mlp_bias"),
        ("step-3.7", {"use_head_wise_attn_gate": False}, "use_head_wise_attn_gate"),
        ("step-3.7", {"moe_router_activation": "softmax"}, "moe_router_activation"),
        ("step-3.7", {"per_layer_config": {"0": {"num_attention_heads": 6}}}, "per_layer_config"),
        ("step-3.7", {"num_sliding_attention_heads": 5}, "num_sliding_attention_heads"),
        ("step-3.7", {"rope_parameters": None, "rope_theta": [1e4]}, "rope_theta"),
        ("ling-3", {"q_lora_rank": 24}, "q_lora_rank"),
        ("ling-3", {"attention_bias": True}, "attention_bias"),
        ("ling-3", {"scoring_func": "softmax"}, "scoring_func"),
        ("ling-3", {"kda_lower_bound": 1.0}, "kda_lower_bound"),
        ("ling-3", {"rope_interleave": False}, "rope_interleave"),
        ("ling-3", {"layer_types": ["conv"]}, "layer_types"),
        ("molmo2", {"qk_norm_type": "none"}, "qk_norm_type"),
        ("molmo2", {"use_qk_norm": False}, "use_qk_norm"),
        ("molmo2", {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ("kolibri-1", {"sliding_window": None}, "sliding_window"),
        ("hrm-text", {"prefix_lm": True}, "prefix_lm"),
        ("hrm-text", {"attention_bias": True}, "attention_bias"),
        ("zaya", {"cca_time1": 3}, "cca_time1"),
        ("zaya", {"num_experts_per_tok": 2}, "num_experts_per_tok"),
        ("zaya", {"lm_head_bias": True}, "lm_head_bias"),
        ("zaya", {"layer_types": ["hybrid", "hybrid_sliding", "hybrid"]}, "sliding_window"),
        ("qwen4-exp", {"ple_layer_ids": [1]}, "ple_layer_ids"),
        ("qwen4-exp", {"indexer_budget": 130}, "indexer_budget"),
        ("qwen4-exp", {"output_gate_type": "gelu"}, "output_gate_type"),
        ("xlstm", {"weight_mode": "fused"}, "weight_mode"),
        ("xlstm", {"use_bias": True}, "use_bias"),
        ("xlstm", {"num_heads": 5}, "num_heads"),
        ("rwkv4", {"attention_hidden_size": 40}, "attention_hidden_size"),
        ("dots3", {"per_layer_config": {"0": {"num_attention_heads": 6}}}, "per_layer_config"),
        ("dots3", {"q_lora_rank": 0}, "q_lora_rank"),
        ("dots3", {"n_shared_experts": 0}, "n_shared_experts"),
        ("mistral-large-4", {"kv_source_layers": [0, 1, 2, 2, 2, 5]}, "kv_source_layers"),
        ("mistral-large-4", {"no_rope_layers": [1, 2]}, "no_rope_layers"),
        ("mistral-large-4", {"n_group": 2}, "n_group"),
        ("mistral-large-4", {"q_lora_rank": 24}, "q_lora_rank"),
        ("kolibri-1", {"hidden_act": "gelu"}, "hidden_act"),
        ("kolibri-1", {"attention_bias": True}, "attention_bias"),
        ("axk2", {"q_lora_rank": 0}, "q_lora_rank"),
        ("axk2", {"gated_norm_rank": 0}, "gated_norm_rank"),
        ("hy-v4", {"swiglu_limit": 0.0}, "swiglu_limit"),
        ("hy-v4", {"hc_mult": 1}, "hc_mult"),
        ("hy-v4", {"indexer_types": ["shared", "full", "full", "full"]}, "indexer_types"),
        ("hy-v4", {"attention_bias": True}, "attention_bias"),
        ("glm-5.3-flash", {"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail"),
        ("glm-5.3-flash", {"index_topk": 70}, "index_topk"),
        ("glm-5.3-flash", {"qk_rope_head_dim": 8}, "qk_rope_head_dim"),
        ("glm-5.3-flash", {"layer_types": ["conv"]}, "layer_types"),
        ("cohere-compass", {"rope_parameters": {"full_attention": None}}, "rope_parameters"),
        ("beam", {"rope_parameters": {"sliding_attention": {}}}, "rope_parameters"),
        ("beam", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ("beam", {"n_group": 3}, "n_group"),
        ("xglm", {"pad_token_id": 3}, "pad_token_id"),
        ("xglm", {"add_cross_attention": True}, "add_cross_attention"),
        ("ctrl", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("laguna", {"gating": "per-layer"}, "gating"),
        ("laguna", {"moe_apply_router_weight_on_input": True}, "moe_apply_router_weight_on_input"),
        ("laguna", {"num_attention_heads_per_layer": [4, 4]}, "num_attention_heads_per_layer"),
        ("ernie-4.5-vl", {"use_bias": True}, "use_bias"),
        ("ernie-4.5-vl", {"mlp_layer_types": ["dense", "sparse"]}, "mlp_layer_types"),
        ("olmo-hybrid", {"linear_num_value_heads": 3}, "linear_num_value_heads"),
        ("modernbert-decoder", {"classifier_activation": "no-function"}, "classifier_activation"),
        ("aria-text", {"hidden_act": "relu"}, "hidden_act"),
        ("phi4-multimodal", {"hidden_act": "no-function"}, "hidden_act"),
        ("muse-glimmer", {"layer_rope_theta": [1.0]}, "layer_rope_theta"),
        ("modernbert-classifier", {"classifier_pooling": "mean"}, "classifier_pooling"),
        ("nomic-bert-moe", {"activation_function": "geglu"}, "activation_function"),
        ("nomic-bert-moe", {"moe_normalize_expert_weights": True}, "moe_normalize_expert_weights"),
        ("nomic-bert-moe", {"num_shared_experts": 1}, "num_shared_experts"),
        ("nomic-bert-moe", {"mlp_fc2_bias": False}, "mlp_fc2_bias"),
        ("neobert", {"rope": False}, "rope"),
        ("neobert", {"hidden_act": "gelu"}, "hidden_act"),
        ("openai-gpt", {"afn": "gelu_10"}, "afn"),
        ("openai-gpt", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("minimax-m3", {"swiglu_alpha": 1.5}, "swiglu_alpha"),
        ("minimax-m3", {"rotary_dim": 16}, "rotary_dim"),
        ("minimax-m3", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "layer_types"),
        ("embedding-gemma", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("dbrx", {"attn_config": {"clip_qkv": -1.0}}, "clip_qkv"),
        ("dbrx", {"attn_config": {"rope_theta": 7.0}}, "rope_theta"),
        ("dbrx", {"ffn_config": {"moe_normalize_expert_weights": 2.0}}, "moe_normalize_expert_weights"),
        ("dbrx", {"ffn_config": {"ffn_act_fn": {"name": "no-function"}}}, "name"),
        ("dbrx", {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ("persimmon", {"num_key_value_heads": 2}, "num_key_value_heads"),
        ("fuyu", {"hidden_act": "no-function"}, "hidden_act"),
        ("longcat-flash", {"router_bias": True}, "router_bias"),
        ("longcat-flash", {"zero_expert_type": "drop"}, "zero_expert_type"),
        ("longcat-flash", {"norm_topk_prob": True}, "norm_topk_prob"),
        ("longcat-flash", {"mla_scale_q_lora": False}, "mla_scale_q_lora"),
        ("longcat-flash", {"num_hidden_layers": 3}, "num_hidden_layers"),
        ("longcat-flash", {"n_routed_experts": 1024}, "zero_expert_num"),
        ("jetmoe", {"num_attention_heads": 4}, "num_attention_heads"),
        ("jetmoe", {"num_experts_per_tok": 6, "num_attention_heads": 18}, "num_experts_per_tok"),
        ("electra", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(family: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read_model(changed(family, **changes))
