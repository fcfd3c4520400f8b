"""Keys of GGUF files that only single families have, and that the reader's tables do not describe. They are the inverse
of what the family's reader (`more`) computes.

If this module lacks a key that a family needs, the written file describes another model. The file is read back after it
is written, and is then refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from twostroke.quantize.gguf.fields import Names, Own, head_dim, rope_groups, rope_of
from twostroke.quantize.gguf.own_gemma_keys import gemma3n, gemma4
from twostroke.quantize.gguf.own_mixed_keys import apertus, grok, kimi_linear, mimo2
from twostroke.quantize.gguf.own_state_keys import (
    delta,
    delta_sections,
    falcon_mamba,
    granite_hybrid,
    jamba,
    lfm2,
    lfm2moe,
    states,
)
from twostroke.weights.gguf.families.family import Config


def _sigmoid(config: Config, _: Names) -> dict[str, Any]:
    """Returns the GGUF keys for DeepSeek-V3's way of choosing experts."""
    return {"expert_gating_func": 2, "expert_weights_norm": bool(config.get("norm_topk_prob", True))}


def _always_divided(config: Config, _: Names) -> dict[str, Any]:
    return {"expert_gating_func": 2, "expert_weights_norm": True}


def _pattern(config: Config, _: Names) -> dict[str, Any]:
    """Returns the GGUF key that tells, layer by layer, which layers have a sliding window."""
    types = config.get("layer_types")
    if not config.get("sliding_window") or not types or "sliding_attention" not in types:
        return {"attention.sliding_window": None}
    return {"attention.sliding_window_pattern": [each == "sliding_attention" for each in types]}


def _swa_base(config: Config, names: Names) -> dict[str, Any]:
    sliding = rope_groups(config).get("sliding_attention")
    own = sliding.get("rope_theta") if isinstance(sliding, Mapping) else None
    return {"rope.freq_base_swa": float(own or config.get("rope_local_base_freq") or 10000.0)}


def _latent(config: Config, _: Names) -> dict[str, Any]:
    """Returns the GGUF keys for latent attention (MLA), which llama.cpp computes with one KV head. The key of this head
    is the latent and the part that has rotary positions."""
    rank, turned = int(config["kv_lora_rank"]), int(config["qk_rope_head_dim"])
    factor = rope_of(config).get("mscale_all_dim")
    return {
        "attention.head_count_kv": 1,
        "attention.key_length": rank + turned,
        "attention.value_length": rank,
        "attention.key_length_mla": int(config["qk_nope_head_dim"]) + turned,
        "attention.value_length_mla": int(config["v_head_dim"]),
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "rope.dimension_count": turned,
        "rope.scaling.yarn_log_multiplier": float(factor) / 10 if factor else None,
    }


def _deepseek2(config: Config, names: Names) -> dict[str, Any]:
    return {**_latent(config, names), "expert_gating_func": 1}


def _deepseek3(config: Config, names: Names) -> dict[str, Any]:
    return {**_latent(config, names), **_sigmoid(config, names)}


def _mistral4(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys for Mistral 4, whose queries are multiplied by 1 + beta * log(1 + floor(position / L)). L
    is the context length of the model's training."""
    rope = rope_of(config)
    growth = float(rope.get("llama_4_scaling_beta") or 0.0)
    return {
        **_latent(config, names),
        "attention.temperature_scale": growth or None,
        "attention.temperature_length": rope.get("original_max_position_embeddings") if growth else None,
    }


def _minicpm3(config: Config, _: Names) -> dict[str, Any]:
    turned = int(config["qk_rope_head_dim"])
    return {
        "attention.key_length": int(config["qk_nope_head_dim"]) + turned,
        "attention.value_length": None,
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "rope.dimension_count": turned,
    }


def _llama4(config: Config, _: Names) -> dict[str, Any]:
    return {
        "feed_forward_length": config.get("intermediate_size_mlp"),
        "expert_feed_forward_length": config.get("intermediate_size"),
        "expert_gating_func": 2,
    }


def _minimax(config: Config, _: Names) -> dict[str, Any]:
    dim = head_dim(config)
    turned = config.get("rotary_dim") or int(dim * rope_of(config).get("partial_rotary_factor", 1.0))
    own = {"attention.value_length": dim, "rope.dimension_count": turned}
    return {"expert_gating_func": 2, "expert_feed_forward_length": config.get("intermediate_size"), **own}


def _gpt_oss(config: Config, _: Names) -> dict[str, Any]:
    return {"expert_feed_forward_length": config.get("intermediate_size")}


def _shared_width(config: Config, names: Names) -> dict[str, Any]:
    """Returns the key for the width of the shared expert, taken from the shape of its gate matrix."""
    found = [shape[0] for name, shape in names.items() if name.endswith("ffn_gate_shexp.weight")]
    return {"expert_shared_feed_forward_length": found[0]} if found else {}


def _hunyuan_moe(config: Config, names: Names) -> dict[str, Any]:
    shape = next(shape for name, shape in names.items() if name.endswith("ffn_gate_exps.weight"))
    return {**_shared_width(config, names), "expert_feed_forward_length": shape[1]}


def _olmo3(config: Config, names: Names) -> dict[str, Any]:
    base = rope_of(config).get("rope_theta") or config.get("rope_theta")
    return {**_pattern(config, names), "rope.freq_base_swa": None if base is None else float(base)}


def _falcon(config: Config, names: Names) -> dict[str, Any]:
    many = config.get("new_decoder_architecture") or not config.get("multi_query", True)
    own = config.get("num_kv_heads") or config.get("num_attention_heads")
    return {**_whole_heads(config, names), "attention.head_count_kv": own if many else 1}


def _whole_heads(config: Config, names: Names) -> dict[str, Any]:
    """Returns the feed-forward width, taken from the shape of the matrix ffn_up, and None for the sizes of heads. A key
    with the value None is not written, because files of Falcon, BLOOM and MPT do not have it."""
    width = next(shape[0] for name, shape in names.items() if name.endswith("ffn_up.weight"))
    absent = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"))
    return {**absent, "feed_forward_length": width}


def _bloom(config: Config, names: Names) -> dict[str, Any]:
    heads = config.get("n_head") or config.get("num_attention_heads")
    return {**_whole_heads(config, names), "attention.head_count_kv": heads}


def _mpt(config: Config, names: Names) -> dict[str, Any]:
    said = config.get("attn_config") or {}
    clip = {"attention.clamp_kqv": float(said["clip_qkv"])} if said.get("clip_qkv") else {}
    return {**_whole_heads(config, names), "attention.max_alibi_bias": float(said.get("alibi_bias_max", 8)), **clip}


def _glm(config: Config, _: Names) -> dict[str, Any]:
    share = config.get("partial_rotary_factor") or rope_of(config).get("partial_rotary_factor") or 0.5
    return {"rope.dimension_count": int(head_dim(config) * share), "attention.key_length": None}


def _longrope(config: Config, _: Names) -> dict[str, Any]:
    rope = rope_of(config)
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    factor = rope.get("attention_factor")
    if factor is None and original and rope.get("long_factor"):
        share = int(config["max_position_embeddings"]) / int(original)
        factor = math.sqrt(1 + math.log(share) / math.log(int(original))) if share > 1 else 1.0
    return {
        "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": None if factor is None else float(factor),
    }


def _growing(config: Config, _: Names) -> dict[str, Any]:
    rope = rope_of(config)
    beta, factor = rope.get("llama_4_scaling_beta"), rope.get("mscale_all_dim")
    return {
        "attention.temperature_scale": None if beta is None else float(beta),
        "rope.scaling.yarn_log_multiplier": None if factor is None else float(factor),
    }


def _gpt2(config: Config, _: Names) -> dict[str, Any]:
    heads = int(config["n_head"])
    return {
        "feed_forward_length": config.get("n_inner") or 4 * int(config["n_embd"]),
        "attention.head_count_kv": heads,
        "attention.key_length": None,
        "attention.value_length": None,
        "rope.dimension_count": None,
    }


def _neox(config: Config, _: Names) -> dict[str, Any]:
    rope = rope_of(config)
    share = rope.get("partial_rotary_factor") or config.get("rotary_pct", 0.25)
    base = rope.get("rope_theta") or config.get("rotary_emb_base", 10000.0)
    return {
        "rope.dimension_count": int(head_dim(config) * share),
        "rope.freq_base": float(base),
    }


def _starcoder2(config: Config, _: Names) -> dict[str, Any]:
    return {"attention.sliding_window": None}


def _glm_dsa(config: Config, names: Names) -> dict[str, Any]:
    layers = range(int(config["num_hidden_layers"]))
    own = [f"blk.{index}.indexer.attn_k.weight" in names for index in layers]
    return {**_deepseek3(config, names), "attention.indexer.types": own}


def _bigcode(config: Config, names: Names) -> dict[str, Any]:
    return {**_gpt2(config, names), "attention.head_count_kv": 1}


def _olmo(config: Config, names: Names) -> dict[str, Any]:
    absent = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    clip = {"attention.clamp_kqv": float(config["clip_qkv"])} if config.get("clip_qkv") else {}
    return {**dict.fromkeys(absent), "attention.layer_norm_epsilon": 1e-5, **clip}


def _encoder(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys of an encoder. Keys for the sizes of heads are None, and not written, where the config does
    not give them."""
    usual = () if config.get("head_dim") else ("attention.key_length", "attention.value_length")
    return {"attention.causal": False, **dict.fromkeys((*usual, "rope.dimension_count", "attention.head_count_kv"))}


def _modern_bert(config: Config, names: Names) -> dict[str, Any]:
    return {
        **_encoder(config, names),
        **_swa_base({"rope_local_base_freq": config.get("local_rope_theta"), **config}, names),
        "attention.sliding_window": config.get("local_attention", 128),
        "attention.sliding_window_pattern": config.get("global_attn_every_n_layers", 3),
        "attention.layer_norm_epsilon": float(config.get("norm_eps", 1e-5)),
        "hidden_activation": config.get("hidden_activation", "gelu"),
        "rope.freq_base": float(config.get("global_rope_theta") or rope_of(config).get("rope_theta") or 160_000.0),
    }


def no_own_keys(config: Config, names: Names) -> dict[str, Any]:
    """Returns no keys, for families that have none of their own."""
    return {}


OWN_KEYS: Mapping[str, Own] = {
    "gemma3": _swa_base,
    "olmo3": _olmo3,
    "exaone4": _pattern,
    "chatglm": _glm,
    "phi3": _longrope,
    "phimoe": _longrope,
    "mistral3": _growing,
    "starcoder2": _starcoder2,
    "gpt2": _gpt2,
    "gptneox": _neox,
    "glm4moe": _sigmoid,
    "dots1": _sigmoid,
    "exaone-moe": lambda config, names: {
        **_sigmoid(config, names),
        **_pattern(config, names),
        **_shared_width(config, names),
    },
    "hy_v3": lambda config, names: {**_always_divided(config, names), **_shared_width(config, names)},
    "ernie4_5-moe": _shared_width,
    "hunyuan-moe": _hunyuan_moe,
    "gpt-oss": _gpt_oss,
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
    "falcon-two-norms": _falcon,
    "minimax-m2": _minimax,
    "llama4": _llama4,
    "afmoe": _always_divided,
    "deepseek2": _deepseek2,
    "deepseek3": _deepseek3,
    "deepseek32": _deepseek3,
    "youtu": _latent,
    "minicpm3": _minicpm3,
    "mistral4": _mistral4,
    "kimi-linear": lambda config, names: {**_latent(config, names), **kimi_linear(config, names)},
    "mimo2": mimo2,
    "grok": grok,
    "apertus": apertus,
    "mamba": states,
    "falcon-mamba": falcon_mamba,
    "mamba2": states,
    "jamba": jamba,
    "granitehybrid": granite_hybrid,
    "lfm2": lfm2,
    "lfm2moe": lfm2moe,
    "qwen3next": delta,
    "qwen35": delta_sections,
    "qwen35moe": delta_sections,
    "starcoder": _bigcode,
    "olmo": _olmo,
    "glm-dsa": _glm_dsa,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "bert": _encoder,
    "bert-classifier": _encoder,
    "nomic-bert": _encoder,
    "jina-bert-v3": _encoder,
    "eurobert": lambda config, names: {"attention.causal": False},
    "gemma-embedding": _swa_base,
    "modern-bert": _modern_bert,
}
"""The functions that write the keys of single families. Their names are those under which the reader's tables
(FAMILIES) describe the families."""
