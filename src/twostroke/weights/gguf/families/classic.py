"""GGUF names of GPT-2 and of decoders of its form: layer norms, mostly no gate, often one tensor for q, k and v.

Sources: conversion/*.py of llama.cpp, MODEL_TENSORS of the `gguf` package.
"""

from __future__ import annotations

from typing import Any

from twostroke.ops.operands import I32Array
from twostroke.weights.gguf.families.family import OUTER, Config, Family, Place
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import ATTENTION, DENSE, Names
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.row_orders import taken_in_turn

GPT2_OUTER: Names = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
GPT2_LAYER: Names = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
GPT2_FIELDS = {
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_attention_heads": "n_head",
}
STARCODER: Names = {**ATTENTION, "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
NORM_EPS = {"layer_norm_epsilon": "layer_norm_eps"}
CLIP = "attention.clamp_kqv"
"""The key of the limit of q, k and v; a value of 0 means no limit."""
PLAIN_BLOCK: Names = {"ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"}


def _head_by_head(config: Config, rows: int) -> I32Array:
    """Returns, for each row of the Hugging Face tensor, the stored row. The file stores all of q, then all of k, then
    all of v. The Hugging Face tensor has q, k and v of the first head, then those of the second head, and so on."""
    heads = int(config["num_attention_heads"])
    return taken_in_turn(heads, (rows // heads // 3,) * 3)


def _group_by_group(config: Config, rows: int) -> I32Array:
    """Returns, for each row of the Hugging Face tensor, the stored row. The file stores all of q, then all of k, then
    all of v. The Hugging Face tensor has for each group of heads its queries, then its key, then its value."""
    heads, groups = int(config["num_attention_heads"]), int(config["num_kv_heads"])
    dim = rows // (heads + 2 * groups)
    return taken_in_turn(groups, (heads // groups * dim, dim, dim))


def _neox(keys: Keys, config: Config) -> dict[str, Any]:
    dim = config["hidden_size"] // config["num_attention_heads"]
    return {
        "rotary_pct": keys.number("rope.dimension_count", dim) / dim,
        "rotary_emb_base": config.get("rope_theta", 10000.0),
    }


def _falcon(keys: Keys, config: Config) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    kv = keys.number("attention.head_count_kv", heads)
    two = keys.has_tensor("attn_norm_2.weight")
    inner = keys.tensor_shape("ffn_up.weight")[0]  # the key always states 4 times the width, whatever the real size is
    grouped = two or kv not in (1, heads)
    names = {"new_decoder_architecture": grouped, "multi_query": kv == 1, "parallel_attn": True}
    norms = {"num_ln_in_parallel_attn": 2 if two else 1} if grouped else {}
    return {**names, **norms, "num_kv_heads": kv, "intermediate_size": inner, "bias": keys.has_tensor("attn_qkv.bias")}


def _falcon_kind(keys: Keys) -> str:
    return "falcon-two-norms" if keys.has_tensor("attn_norm_2.weight") else ""


def _mpt(keys: Keys, config: Config) -> dict[str, Any]:
    bias, clip = keys.number("attention.max_alibi_bias", 8.0), keys.number(CLIP, 0.0) or None
    return {"attn_config": {"alibi": True, "alibi_bias_max": bias, "clip_qkv": clip}, **_inner(keys, config)}


def _inner(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the inner width of a feed-forward block from the shape of its matrix. The key is of no use: the converter
    always writes four times the model's width."""
    return {"intermediate_size": keys.tensor_shape("ffn_up.weight")[0]}


def _phi2(keys: Keys, config: Config) -> dict[str, Any]:
    dim = config["hidden_size"] // config["num_attention_heads"]  # the key states the queries' heads in any case
    return {**_inner(keys, config), "num_key_value_heads": keys.tensor_shape("attn_k.weight")[0] // dim}


def _nemotron(keys: Keys, config: Config) -> dict[str, Any]:
    keys.number("attention.layer_norm_rms_epsilon", 1e-5)
    keys.text("rope.scaling.type", "none")
    return {"mlp_bias": keys.has_tensor("ffn_up.bias")}


def _stablelm(keys: Keys, _: Config) -> dict[str, Any]:
    return {"use_qkv_bias": keys.has_tensor("attn_q.bias")}


def _bigcode(keys: Keys, config: Config) -> dict[str, Any]:
    keys.same("attention.head_count_kv", 1)
    return {"multi_query": True, **_inner(keys, config)}


def _olmo(keys: Keys, _: Config) -> dict[str, Any]:
    """Returns the fields of OLMo. Its norms have no weights, and their epsilon is always 1e-5."""
    if abs(keys.number("attention.layer_norm_epsilon", 1e-5) - 1e-5) > 1e-9:
        raise keys.wrong("attention.layer_norm_epsilon", "It is 1e-5 in this family.")
    return {"clip_qkv": keys.number(CLIP, 0.0) or None}


FALCON: Names = {
    "attn_qkv": Place("self_attention.query_key_value", order=_group_by_group),
    "attn_output": "self_attention.dense",
    **PLAIN_BLOCK,
}
FALCON_OUTER: Names = {
    "token_embd": "transformer.word_embeddings",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}

FAMILIES: dict[str, Family] = {
    "starcoder2": Family(
        "Starcoder2ForCausalLM",
        "starcoder2",
        STARCODER,
        fixed={"hidden_act": "gelu_pytorch_tanh", "sliding_window": None},
        renamed={"layer_norm_epsilon": "norm_epsilon", "attention_bias": "use_bias"},
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        "gpt2",
        GPT2_LAYER,
        outer=GPT2_OUTER,
        layers="transformer.h.",
        turned=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
        renamed=GPT2_FIELDS,
        more=_inner,
    ),
    "starcoder": Family(
        "GPTBigCodeForCausalLM",
        "gpt_bigcode",
        GPT2_LAYER,
        outer=GPT2_OUTER,
        layers="transformer.h.",
        renamed=GPT2_FIELDS,
        more=_bigcode,
    ),
    "olmo": Family(
        "OlmoForCausalLM",
        "olmo",
        {name: ours for name, ours in DENSE.items() if "norm" not in name},
        pairs=True,
        renamed={"layer_norm_epsilon": ""},
        more=_olmo,
    ),
    "gptneox": Family(
        "GPTNeoXForCausalLM",
        "gpt_neox",
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": Place("attention.query_key_value", order=_head_by_head),
            "attn_output": "attention.dense",
            "ffn_norm": "post_attention_layernorm",
            **PLAIN_BLOCK,
        },
        outer={"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"},
        layers="gpt_neox.layers.",
        apart=True,
        fixed={"hidden_act": "gelu"},
        renamed={**NORM_EPS, "attention_bias": ""},
        rows=(KeyRow("use_parallel_residual", "use_parallel_residual", bool, absent=True, silent=True),),
        more=_neox,
    ),
    "bloom": Family(
        "BloomForCausalLM",
        "bloom",
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": Place("self_attention.query_key_value", order=_head_by_head),
            "attn_output": "self_attention.dense",
            "ffn_norm": "post_attention_layernorm",
            **PLAIN_BLOCK,
        },
        outer={
            "token_embd": "transformer.word_embeddings",
            "token_embd_norm": "transformer.word_embeddings_layernorm",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layers="transformer.h.",
        more=_inner,
    ),
    "falcon": Family(
        "FalconForCausalLM",
        "falcon",
        {**FALCON, "attn_norm": "input_layernorm"},
        outer=FALCON_OUTER,
        layers="transformer.h.",
        chosen=_falcon_kind,
        more=_falcon,
    ),
    "falcon-two-norms": Family(
        "FalconForCausalLM",
        "falcon",
        {**FALCON, "attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"},
        outer=FALCON_OUTER,
        layers="transformer.h.",
        more=_falcon,
    ),
    "mpt": Family(
        "MptForCausalLM",
        "mpt",
        {
            "attn_norm": "norm_1",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.out_proj",
            "ffn_norm": "norm_2",
            "ffn_up": "ffn.up_proj",
            "ffn_down": "ffn.down_proj",
        },
        outer={"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
        layers="transformer.blocks.",
        more=_mpt,
    ),
    "phi2": Family(
        "PhiForCausalLM",
        "phi",
        {**DENSE, "attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
        outer={**OUTER, "output_norm": "model.final_layernorm"},
        partial=True,
        renamed=NORM_EPS,
        fixed={"hidden_act": "gelu_new"},
        more=_phi2,
    ),
    "stablelm": Family(
        "StableLmForCausalLM",
        "stablelm",
        DENSE,
        partial=True,
        rows=(KeyRow("use_parallel_residual", "use_parallel_residual", bool, absent=False, silent=False),),
        renamed=NORM_EPS,
        more=_stablelm,
    ),
    "nemotron": Family(
        "NemotronForCausalLM",
        "nemotron",
        DENSE,
        partial=True,
        less_one=frozenset({"attn_norm", "ffn_norm", "output_norm"}),
        renamed={"layer_norm_epsilon": "norm_eps"},
        fixed={"hidden_act": "relu2"},
        more=_nemotron,
    ),
}
