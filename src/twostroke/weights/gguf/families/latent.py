"""Decoders with latent attention (MLA).

Current files store kv_b_proj as two tensors with a matrix for each head, ready for absorbed attention: keys as (latent,
head) and values as (head, latent). Older files have kv_b_proj as Hugging Face checkpoints do. Sources:
conversion/{deepseek,minicpm,mistral,mistral3}.py of llama.cpp.
"""

from __future__ import annotations

from typing import Any

from twostroke.ops.operands import I32Array
from twostroke.weights.gguf.families.experts import DEEPSEEK, DEEPSEEK_NAMES
from twostroke.weights.gguf.families.family import Config, Family, Joined, Place, Shape
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import GATE_AND_UP, expert_by_expert
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.row_orders import taken_in_turn

LATENT = {
    **DEEPSEEK_NAMES,
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
}
INDEX = {
    "indexer.k_norm": "self_attn.indexer.k_norm",
    "indexer.proj": "self_attn.indexer.weights_proj",
    "indexer.attn_k": "self_attn.indexer.wk",
    "indexer.attn_q_b": "self_attn.indexer.wq_b",
}


def _keys_and_values(_: Config, shapes: tuple[Shape, ...]) -> I32Array:
    """Returns, for each row of kv_b_proj, the row in the two stored tensors laid end to end. They have the keys of all
    heads, then the values of all heads; kv_b_proj has for each head its key, then its value."""
    return taken_in_turn(shapes[0][0], (shapes[0][2], shapes[1][1]))


KEYS_AND_VALUES = Joined(
    "self_attn.kv_b_proj.weight",
    ("attn_k_b.weight", "attn_v_b.weight"),
    order=_keys_and_values,
    turned_pieces=frozenset({"attn_k_b.weight"}),
)


def latent_heads(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the sizes of heads with latent attention."""
    turned = keys.number("rope.dimension_count")
    keys.ignore("attention.key_length", "attention.value_length", "attention.head_count_kv")
    key = keys.number("attention.key_length_mla", keys.number("attention.key_length", 192))
    value = keys.number("attention.value_length_mla", keys.number("attention.value_length", 128))
    return {
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": key - turned,
        "v_head_dim": value,
        "q_lora_rank": keys.number("attention.q_lora_rank") if keys.has("attention.q_lora_rank") else None,
        "num_key_value_heads": config["num_attention_heads"],
        "attention_bias": keys.has_tensor("attn_kv_a_mqa.bias"),
        **_stretched(keys, config),
    }


def _stretched(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the YaRN rope with mscale and mscale_all_dim, which scale attention scores. The file's key
    yarn_log_multiplier holds a tenth of mscale_all_dim."""
    rope = config.get("rope_scaling")
    if rope is None or not keys.has("rope.scaling.yarn_log_multiplier"):
        return {}
    factor = keys.number("rope.scaling.yarn_log_multiplier") * 10
    return {"rope_scaling": {**rope, "mscale": factor, "mscale_all_dim": factor}}


def _dense_or_experts(keys: Keys) -> str:
    if not (keys.has("expert_count") and keys.number("expert_count")):
        return "youtu"
    return "deepseek3" if keys.number("expert_gating_func", 1) == 2 or keys.has_tensor("exp_probs_b.bias") else ""


def _groups(config: Config, experts: int, published: tuple[int, int]) -> dict[str, int]:
    """Returns the number of groups of experts, and how many of them are kept. Files of older converters have neither
    key. If such a file has as many experts as the published model with groups, it gets that model's groups; other files
    have no groups."""
    if config.get("n_group"):
        return {}
    known = "n_group" not in config and config.get("n_routed_experts") == experts
    return dict(zip(("n_group", "topk_group"), published if known else (1, 1), strict=True))


def _deepseek2(keys: Keys, config: Config) -> dict[str, Any]:
    if keys.number("expert_gating_func", 1) != 1 or keys.truth("expert_weights_norm", False):
        raise keys.wrong("expert_gating_func", "Experts that are chosen without a bias are chosen by a softmax.")
    groups = _groups(config, 160, (8, 3))
    grouped = {**config, **groups}["n_group"] > 1
    method = "group_limited_greedy" if grouped else "greedy"
    return {**latent_heads(keys, config), **groups, "topk_method": method, "norm_topk_prob": False}


def _deepseek3(keys: Keys, config: Config) -> dict[str, Any]:
    return {**_chosen_by_sigmoids(keys, config), **_groups(config, 256, (8, 4))}


def _chosen_by_sigmoids(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the config fields of a model that chooses experts as DeepSeek V3 does, by the sigmoid of the router's
    logits plus a bias. A file without the routed scaling factor means the factor 1."""
    if keys.number("expert_gating_func", 2) != 2:
        raise keys.wrong("expert_gating_func", "Experts that are chosen with a bias are chosen by a sigmoid (2).")
    normed = keys.truth("expert_weights_norm", False)
    layers = config["num_hidden_layers"] - keys.number("nextn_predict_layers", 0)
    sparse = [f"blk.{index}.ffn_gate_inp.weight" in keys.tensors for index in range(layers)]
    said = {"norm_topk_prob": normed, "num_hidden_layers": layers, "first_k_dense_replace": sparse.index(True)}
    factor = config.get("routed_scaling_factor", 1.0)
    return {**latent_heads(keys, config), **said, "routed_scaling_factor": factor}


def _glm_dsa(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of a model with sparse attention, whose layers choose with an indexer the positions that they
    attend to. A layer without an indexer of its own uses the choice of the nearest earlier layer that has one."""
    found = _chosen_by_sigmoids(keys, config)
    layers = range(int(found["num_hidden_layers"]))
    full = [f"blk.{index}.indexer.attn_k.weight" in keys.tensors for index in layers]
    keys.ignore("attention.indexer.types")
    return {**found, "indexer_types": ["full" if each else "shared" for each in full]}


def _mistral4(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Mistral 4: experts with weights of a softmax, and queries that may grow with their
    position. llama.cpp takes 1 for yarn's mscale."""
    if keys.number("expert_gating_func", 1) != 1:
        raise keys.wrong("expert_gating_func", "Experts of this family are chosen by a softmax (1).")
    found = latent_heads(keys, config)
    rope = found.get("rope_scaling") or config.get("rope_scaling") or {"rope_type": "default"}
    growth = keys.number("attention.temperature_scale", 0.0)
    if growth:
        keys.same("attention.temperature_length", rope.get("original_max_position_embeddings"))
    keys.ignore("attention.temperature_length")
    rope = {**rope, **({"mscale": 1.0} if "mscale" in rope else {})}
    rope |= {"rope_theta": config.get("rope_theta", 10000.0), "llama_4_scaling_beta": growth}
    return {
        **found,
        "rope_interleave": True,
        "rope_scaling": None,
        "rope_parameters": rope,
    }


def _youtu(keys: Keys, config: Config) -> dict[str, Any]:
    keys.ignore("leading_dense_block_count", "expert_feed_forward_length", "expert_shared_count")
    return latent_heads(keys, config)


def _minicpm3(keys: Keys, config: Config) -> dict[str, Any]:
    heads = latent_heads(keys, config)
    rows = keys.tensor_shape("attn_kv_b.weight")[0] // config["num_attention_heads"]
    return {**heads, "v_head_dim": rows - heads["qk_nope_head_dim"]}


INDEX_ROWS = (
    KeyRow("attention.indexer.head_count", "index_n_heads"),
    KeyRow("attention.indexer.key_length", "index_head_dim"),
    KeyRow("attention.indexer.top_k", "index_topk"),
)
RANK = {"attention.kv_lora_rank": "kv_lora_rank"}

FAMILIES: dict[str, Family] = {
    "deepseek2": Family(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        LATENT,
        joined=(KEYS_AND_VALUES,),
        apart=True,
        chosen=_dense_or_experts,
        keys={**DEEPSEEK, **RANK},
        more=_deepseek2,
    ),
    "deepseek3": Family(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        LATENT,
        joined=(KEYS_AND_VALUES,),
        apart=True,
        keys={**DEEPSEEK, **RANK},
        more=_deepseek3,
    ),
    "deepseek32": Family(
        "DeepseekV32ForCausalLM",
        "deepseek_v32",
        {**LATENT, **INDEX},
        joined=(KEYS_AND_VALUES,),
        apart=True,
        keys={**DEEPSEEK, **RANK},
        rows=INDEX_ROWS,
        more=_chosen_by_sigmoids,
    ),
    "glm-dsa": Family(
        "GlmMoeDsaForCausalLM",
        "glm_moe_dsa",
        {**LATENT, **INDEX},
        joined=(KEYS_AND_VALUES,),
        apart=True,
        keys={**DEEPSEEK, **RANK},
        rows=INDEX_ROWS,
        more=_glm_dsa,
    ),
    "youtu": Family(
        "YoutuForCausalLM",
        "youtu",
        LATENT,
        joined=(KEYS_AND_VALUES,),
        apart=True,
        keys=RANK,
        more=_youtu,
    ),
    "mistral4": Family(
        "Mistral4ForCausalLM",
        "mistral4",
        {
            **LATENT,
            "ffn_gate_up_exps": Place("mlp.experts.gate_up_proj", whole=True),
            "ffn_down_exps": Place("mlp.experts.down_proj", whole=True),
        },
        joined=(
            KEYS_AND_VALUES,
            Joined("mlp.experts.gate_up_proj", GATE_AND_UP, order=expert_by_expert, matrices=True),
        ),
        apart=True,
        keys={**DEEPSEEK, **RANK},
        rows=(KeyRow("expert_weights_norm", "norm_topk_prob", bool, absent=False, silent=True),),
        more=_mistral4,
    ),
    "minicpm3": Family("MiniCPM3ForCausalLM", "minicpm3", LATENT, apart=True, keys=RANK, more=_minicpm3),
}
