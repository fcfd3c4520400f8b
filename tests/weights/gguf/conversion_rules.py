"""The rules by which llama.cpp's converter changes tensors of each architecture before it writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.weights.gguf.converted_states import rules
from tests.weights.gguf.export import interleaved

Named = Iterator[tuple[str, np.ndarray]]
Rule = Callable[[str, np.ndarray, dict[str, Any]], Named]
PAIRED = {
    *("llama", "granite", "granitemoe", "granitehybrid", "smollm3"),
    *("mistral3", "nemotron_h", "nemotron_h_moe", "arcee", "olmo", "minicpm", "deepseek", "xverse"),
}
LIKE = {"deepseek32": "deepseek2", "deepseek4": "deepseek2", "hy_v3": "glm4moe"}
"""Architectures that are newer than the package, and the one that has most of their names."""


def rule_of(arch: str) -> Rule:
    """The changes that the converter makes for an architecture."""
    if arch in PAIRED:
        return lambda name, values, config: _states(name, _paired(name, values, config), config)
    return RULES.get(arch, _states)


def _paired(name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    heads = config["num_attention_heads"]
    if ".q_proj." in name:
        return interleaved(values, heads)
    if ".k_proj." in name:
        return interleaved(values, config.get("num_key_value_heads") or heads)
    return values


def _states(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Mamba's tensors, stacks of gate and of what it multiplies, and biases of a choice. Other tensors do not
    change."""
    heads = config.get("mamba_n_heads") or config.get("mamba_num_heads") or config.get("num_heads")
    groups = config.get("mamba_n_groups") or config.get("n_groups") or 1
    dense = config.get("num_local_experts") == 0
    if name.endswith("A_log"):
        values = (-np.exp(values.astype(np.float64))).astype(np.float32)  # torch's exp differs in the last bit
    if name.endswith(("A_log", ".D")) and heads:
        values = values.reshape(-1, 1)
    if name.endswith(("mixer.norm.weight", "mamba.norm.weight")) and heads:
        values = values.reshape(groups, -1)
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        values = values.squeeze(1)
    name = name.replace(".dt_bias", ".dt_proj.bias").replace("_correction_bias", "_correction.bias")
    if name.endswith("expert_bias"):
        name += ".bias"
    if name.endswith(("block_sparse_moe.input_linear.weight", "shared_mlp.input_linear.weight")):
        gate, up = np.split(values, 2, axis=-2)
        layer = name.split(".")[2]
        kind = "" if dense else "_exps" if "block_sparse_moe" in name else "_shexp"
        yield f"blk.{layer}.ffn_gate{kind}.weight", gate
        yield f"blk.{layer}.ffn_up{kind}.weight", up
    elif name.endswith("shared_mlp.output_linear.weight"):
        yield f"blk.{name.split('.')[2]}.ffn_down{'' if dense else '_shexp'}.weight", values
    else:
        yield name, values


def _grown(but: str = "?") -> Rule:
    def rule(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
        grown = name.endswith("norm.weight") and but not in name
        yield from _states(name, values + 1 if grown else values, config)

    return rule


def _by_parts(values: np.ndarray, groups: int, counts: tuple[int, ...]) -> list[np.ndarray]:
    """Rows that lie group by group, as one array for each part."""
    shape = values.shape[1:]
    grouped = values.reshape(groups, sum(counts), *shape)
    return [part.reshape(-1, *shape) for part in np.split(grouped, np.cumsum(counts)[:-1], axis=1)]


def _apart(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """q, k and v of each head, as all of q, all of k, all of v."""
    if "query_key_value" in name:
        heads = config.get("num_attention_heads") or config["n_head"]
        groups = (config.get("num_kv_heads") or 1) if config["model_type"] == "falcon" else heads
        if config["model_type"] == "falcon" and not config.get("new_decoder_architecture"):
            groups = 1 if config["multi_query"] else heads
        dim = len(values) // (heads + 2 * groups)
        values = np.concatenate(_by_parts(values, groups, (heads // groups * dim, dim, dim)))
    yield name, values


def _turned(name: str, values: np.ndarray, _: dict[str, Any]) -> Named:
    yield name, values.T if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else values


def _latent(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Keys as (latent, head), values as (head, latent)."""
    if not name.endswith("kv_b_proj.weight"):
        yield from _states(name, values, config)
        return
    heads, value = config["num_attention_heads"], config["v_head_dim"]
    keys, held = _by_parts(values, heads, (config["qk_nope_head_dim"], value))
    latent = values.shape[-1]
    yield name.replace("kv_b_proj", "k_b_proj"), keys.reshape(heads, -1, latent).swapaxes(1, 2)
    yield name.replace("kv_b_proj", "v_b_proj"), held.reshape(heads, value, latent)


def _stacks(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Stacks stored as (columns, rows): gpt-oss with rows of gate and up in turn, Llama 4 one after the other."""
    layer, turns = name.split(".")[2] if ".layers." in name else "", config["model_type"] == "gpt_oss"
    if name.endswith("experts.down_proj"):
        yield f"blk.{layer}.ffn_down_exps.weight", values.swapaxes(1, 2)
    elif name.endswith("experts.down_proj_bias"):
        yield f"blk.{layer}.ffn_down_exps.bias", values
    elif "experts.gate_up_proj" in name:
        ending = "bias" if name.endswith("bias") else "weight"
        both = [values[..., ::2], values[..., 1::2]] if turns else np.split(values, 2, axis=-1)
        for part, half in zip(("gate", "up"), both, strict=True):
            yield f"blk.{layer}.ffn_{part}_exps.{ending}", half if ending == "bias" else half.swapaxes(1, 2)
    else:
        yield f"{name}.weight" if name.endswith("sinks") else name, values


def _delta(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Qwen3-Next: the four parts of a product separately. Qwen3.5: the value heads of all key heads in turn."""
    keys, dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    each = config["linear_num_value_heads"] // keys
    wide = config["linear_value_head_dim"]
    if name.endswith("in_proj_qkvz.weight"):
        q, k, v, z = _by_parts(values, keys, (dim, dim, each * wide, each * wide))
        layer = name.split(".")[2]
        yield f"blk.{layer}.attn_qkv.weight", np.concatenate([q, k, v])
        yield f"blk.{layer}.attn_gate.weight", z
        return
    if config["model_type"].startswith("qwen3_5") and "linear_attn." in name:
        first = 2 * keys * dim if "in_proj_qkv" in name or "conv1d" in name else 0
        rows = 1 if name.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")) else wide
        if name.endswith("out_proj.weight"):
            values = _tiled(values.T, keys, each, rows).T
        elif "norm" not in name:
            values = np.concatenate([values[:first], _tiled(values[first:], keys, each, rows)])
    yield from _grown("linear_attn.norm")(name, values, config)


def _tiled(values: np.ndarray, keys: int, each: int, rows: int) -> np.ndarray:
    return values.reshape(keys, each, rows, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)


def _multiplied(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Falcon-H1's factors are multiplied into the weights."""
    seen = config["attention_in_multiplier"]
    factors = {
        "down_proj": config["mlp_multipliers"][1],
        "gate_proj": config["mlp_multipliers"][0],
        "k_proj": config["key_multiplier"] * seen,
        "q_proj": seen,
        "v_proj": seen,
        "o_proj": config["attention_out_multiplier"],
        "out_proj": config["ssm_out_multiplier"],
        "in_proj": config["ssm_in_multiplier"],
        "lm_head": config["lm_head_multiplier"],
        "embed_tokens": config["embedding_multiplier"],
    }
    stem = name.split(".")[-2]
    values = values * np.float32(factors.get(stem, 1.0))
    if stem == "in_proj":
        inner, state = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
        ends = np.cumsum([inner, inner, state, state])
        parts = zip(np.split(values, ends), config["ssm_multipliers"], strict=True)
        values = np.concatenate([part * np.float32(factor) for part, factor in parts])
    yield from _states(name, values, config)


def _roberta(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """The rows of positions that RoBERTa keeps for padding are left out. BERT's head is its classifier's last
    product."""
    name = name.removeprefix("roberta.").removeprefix("bert.")
    if name == "embeddings.position_embeddings.weight" and config["model_type"] != "bert":
        values = values[config["pad_token_id"] + 1 :]
    yield name, values


def _streams(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Gemma 3n's projections of streams are stacks."""
    yield f"{name}.weight" if name.endswith("_scale") else name, values


def _gemma4(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Factors are tensors of the products to which they belong."""
    layer = name.split(".")[2] if ".layers." in name else ""
    if name.endswith("router.scale"):
        yield f"blk.{layer}.ffn_gate_inp.scale", values
    elif name.endswith("per_expert_scale"):
        yield f"blk.{layer}.ffn_down_exps.scale", values
    else:
        ending = ".weight" if name.endswith("layer_scalar") or ".experts." in name else ""
        yield name + ending, values


def _sections(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """GLM-4.1V: rows that are rotated, as halves of a head."""
    if config["rope_parameters"].get("mrope_section") and ("q_proj" in name or "k_proj" in name):
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        turned = int(dim * config["rope_parameters"].get("partial_rotary_factor", 0.5))
        heads = values.reshape(-1, dim, *values.shape[1:])
        parts = [heads[:, :turned:2], heads[:, 1:turned:2], heads[:, turned:]]
        values = np.concatenate(parts, axis=1).reshape(values.shape)
    yield name, values


def _gate_and_up(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Stacks of gate and up, as transformers writes them."""
    layer = name.split(".")[2] if ".layers." in name else ""
    if name.endswith("experts.gate_up_proj"):
        for part, half in zip(("gate", "up"), np.split(values, 2, axis=1), strict=True):
            yield f"blk.{layer}.ffn_{part}_exps.weight", half
    elif name.endswith("experts.down_proj"):
        yield f"blk.{layer}.ffn_down_exps.weight", values
    else:
        yield name, values


def _nomic_experts(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Both tensors of experts as stacks, the second one transposed. The one bias of all is left out."""
    if name.endswith((".w1", ".w2")):
        stack = values.reshape(config["num_experts"], config["n_inner"], config["n_embd"])
        yield f"{name}.weight", stack if name.endswith(".w1") else stack.swapaxes(1, 2)
    elif not name.endswith("mlp.experts.bias"):
        yield name, values


def _dbrx(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """Experts as stacks, with the last product's matrices transposed."""
    stem = name.rpartition(".")[2]
    if ".experts.mlp." not in name:
        yield name, values
        return
    stack = values.reshape(config["ffn_config"]["moe_num_experts"], -1, values.shape[-1])
    yield f"{name}.weight", stack.swapaxes(1, 2) if stem == "w2" else stack


def _internlm2(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """q, k and v lie KV head by KV head. They are stored separately, the rows of the first two as pairs."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    if "attention.wqkv" not in name:
        yield name, values
        return
    dim, layer = len(values) // (heads + 2 * groups), name.split(".")[2]
    q, k, v = _by_parts(values, groups, (heads // groups * dim, dim, dim))
    for part, rows in {"q": interleaved(q, heads), "k": interleaved(k, groups), "v": v}.items():
        yield f"blk.{layer}.attn_{part}.weight", rows


def _rows_apart(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    """q, k and v lie one after the other. They are stored separately, the rows of the first two as pairs."""
    if not name.endswith(("W_pack.weight", "query_key_value.weight")):
        yield name.replace("attention.dense", "self_attn.o_proj"), values
        return
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    dim, layer = len(values) // (heads + 2 * groups), name.split(".")[2]
    q, k, v = np.split(values, [heads * dim, (heads + groups) * dim])
    for part, rows in {"q": interleaved(q, heads), "k": interleaved(k, groups), "v": v}.items():
        yield f"blk.{layer}.attn_{part}.weight", rows


def _neobert(name: str, values: np.ndarray, _: dict[str, Any]) -> Named:
    yield name.removeprefix("model."), values


def _thinned(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    dim = config["hidden_size"] // config["num_attention_heads"]
    yield name, interleaved(values, len(values) // dim) if ".q_proj." in name or ".k_proj." in name else values


RULES: dict[str, Rule] = {
    "internlm2": _internlm2,
    **dict.fromkeys(("baichuan", "bailingmoe"), _rows_apart),
    "neo-bert": _neobert,
    "deci": _thinned,
    "dbrx": _dbrx,
    "nomic-bert-moe": _nomic_experts,
    "bert": _roberta,
    "gemma3n": _streams,
    "gemma4": _gemma4,
    "glm4": _sections,
    "qwen3vlmoe": _gate_and_up,
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma-embedding", "nemotron"), _grown()),
    **dict.fromkeys(("bloom", "gptneox", "falcon"), _apart),
    "gpt2": _turned,
    **dict.fromkeys(("deepseek2", "deepseek32", "glm-dsa"), _latent),
    **dict.fromkeys(("gpt-oss", "llama4"), _stacks),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), _delta),
    "falcon-h1": _multiplied,
    **rules(_states, _latent),
}
