"""Checkpoint folders as the GGUF files that llama.cpp's converter makes of them, with our own writer, by its rules.

Keys were recorded from the converter itself (conversion/*.py of llama.cpp as llama-cpp-python 0.3.36 ships it), run
over the same folders. Every tensor of this writer was equal to the converter's then, except for the last bit of
exponentials. For InternLM 2, EXAONE 3, MiniCPM, Orion, XVERSE, Baichuan, Ling, DeepSeek MoE, Nemotron Super, BitNet,
Jina 2, NeoBERT and Step 3.5, keys were written after the converter's source.
Names of tensors come from the `gguf` package. The changes of values are written here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from tests.weights.gguf.converted_states import fused, numbers_of, rules
from tests.weights.gguf.export import all_of, interleaved, llama3_divisors, read_tensors

Named = Iterator[tuple[str, np.ndarray]]
Rule = Callable[[str, np.ndarray, dict[str, Any]], Named]

RECORDED = Path(__file__).parent / "recorded.json"
PAIRED = {
    *("llama", "granite", "granitemoe", "granitehybrid", "smollm3"),
    *("mistral3", "nemotron_h", "nemotron_h_moe", "arcee", "olmo", "minicpm", "deepseek", "xverse"),
}
LIKE = {"deepseek32": "deepseek2", "deepseek4": "deepseek2", "hy_v3": "glm4moe"}
"""Architectures that are newer than the package, and the one that has most of their names."""
OWN = {
    "indexer.k_norm.weight": "indexer.k_norm.weight",
    "indexer.k_norm.bias": "indexer.k_norm.bias",
    "indexer.weights_proj": "indexer.proj.weight",
    "indexer.wk.": "indexer.attn_k.weight",
    "indexer.wq_b": "indexer.attn_q_b.weight",
    "self_attn.attn_sub_norm": "attn_sub_norm.weight",
    "mlp.ffn_sub_norm": "ffn_sub_norm.weight",
    "mixer.experts.up_proj": "ffn_up_exps.weight",
    "mixer.experts.down_proj": "ffn_down_exps.weight",
    "feed_forward.experts.w1": "ffn_gate_exps.weight",
    "feed_forward.experts.w2": "ffn_down_exps.weight",
    "feed_forward.experts.w3": "ffn_up_exps.weight",
}
"""Names that the package's map does not have."""
NOT_READ = (
    *("pooler.", "cls.", "model.visual.", "visual.", "model.vit.", "vit.", "mlp_AR.", "model.projector."),
    *("vision_model.", "vit_large_projector."),
)
"""Beginnings of names of tensors that the converter leaves out, or puts into a file of their own."""
_EXPERT = re.compile(r"(.*\.experts|model\.altup_\w*projections)\.(\d+)\.(.+)")


def recorded() -> dict[str, dict[str, Any]]:
    """Family -> {"arch": name, "keys": {key without the architecture: [type, value]}}."""
    found: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


def write_converted(family: str, folder: Path, path: Path, kind: Type = Type.F32) -> Path:
    """Writes the file. kind: the type of matrices."""
    said = recorded()[family]
    arch, config = said["arch"], read_config(folder)
    writer = gguf.GGUFWriter(path, arch)
    for key, (number, value) in said["keys"].items():
        add_key(writer, f"{arch}.{key}", number, value)
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["w", "o", "wo", *(f"word{index}" for index in range(3, size))])
    writer.add_token_types([1] * size)
    writer.add_token_merges(["w o"])
    tensors = read_tensors(folder)
    for key, numbers in numbers_of(arch, tensors).items():
        writer.add_array(key, numbers)
    for name, values in tensors_of(arch, config, tensors):
        of = all_of(kind)(name, values.shape)
        small = "norm" in name or "conv" in name or ("ssm_" in name and "ssm_out" not in name)
        if small or values.shape[-1] % gguf.GGML_QUANT_SIZES[of][0]:
            of = Type.F32
        if values.dtype == np.int32:
            writer.add_tensor(name, values)
            continue
        writer.add_tensor(name, gguf.quants.quantize(values, of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json; for a model of images, that of its language model."""
    config = json.loads((folder / "config.json").read_text())
    return {**config, **config.get("text_config", {})}


def add_key(writer: gguf.GGUFWriter, key: str, number: int, value: Any) -> None:
    """A value of one of the format's types."""
    kind = gguf.GGUFValueType(number)
    if isinstance(value, list):
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, sub_type=kind)
    else:
        writer.add_key_value(key, value, kind)


def tensors_of(arch: str, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Named:
    """All tensors of the file."""
    kind = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == LIKE.get(arch, arch))
    layers = (
        config.get("num_hidden_layers")
        or config.get("n_layer")
        or config.get("n_layers")
        or config.get("num_layers")
        or len(config["layers_block_type"])
    )
    names = gguf.get_tensor_name_map(kind, layers)
    yield from rotation_divisors(arch, config)
    for name, values in stacked(fused(arch, tensors)):
        name = name.replace("language_model.", "")
        if arch == "hy_v3":
            if name.endswith("post_attention_layernorm.weight"):
                name = f"blk.{name.split('.')[2]}.ffn_norm.weight"
            name = name.replace("router.gate", "gate").replace("shared_mlp", "shared_experts")
            if name.endswith("mlp.expert_bias"):
                name = f"blk.{name.split('.')[2]}.exp_probs_b"
        if arch == "bloom":
            name = name.removeprefix("transformer.")
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if name.startswith(NOT_READ):
            continue
        for each, changed in rule_of(arch)(name, values, config):
            found = _own_name(each) or names.get_name(each, try_suffixes=(".weight", ".bias"))
            assert found is not None, each
            yield found, np.ascontiguousarray(changed)


def _own_name(name: str) -> str | None:
    if name.startswith(("blk.", "rope_", "token_embd", "output")):
        return name
    found = next((part for part in OWN if part in name), None)
    return None if found is None else f"blk.{name.split('.')[2]}.{OWN[found]}"


def stacked(tensors: dict[str, np.ndarray]) -> Named:
    """The experts of a layer in one tensor, under the name of the stack."""
    stacks: dict[str, dict[int, np.ndarray]] = {}
    for name, values in tensors.items():
        found = _EXPERT.fullmatch(name)
        if found is None:
            yield name, values
        else:
            stacks.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = values
    for name, each in stacks.items():
        yield name, np.stack([each[index] for index in range(len(each))])


def rotation_divisors(arch: str, config: dict[str, Any]) -> Named:
    """Factors of longrope for short and for long contexts."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    full = rope.get("full_attention", rope) if arch == "step35" else {}
    if full.get("rope_type") == "llama3":
        half = llama3_divisors(full, int(config["head_dim"] * full["partial_rotary_factor"]))
        yield "rope_freqs.weight", np.pad(half, (0, config["head_dim"] // 2 - len(half)), constant_values=1.0)
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", llama3_divisors(rope, config["hidden_size"] // config["num_attention_heads"])
    if arch == "gemma4":
        half = next(each["head_dim"] for each in config["per_layer_config"].values()) // 2
        share = rope["full_attention"]["partial_rotary_factor"]
        turned = int(half * share)
        yield "rope_freqs.weight", np.array([1.0] * turned + [1e30] * (half - turned), np.float32)
    if rope.get("rope_type") == "longrope" and arch in ("phi3", "phimoe", "minicpm3"):
        for part in ("long", "short"):
            yield f"rope_factors_{part}.weight", np.array(rope[f"{part}_factor"], np.float32)


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
