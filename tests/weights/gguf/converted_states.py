"""Rules of conversion_rules.py for Apertus, Kimi Linear, MiMo-V2, Mistral 4, Grok, RWKV and DeepSeek-V4."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Named = Iterator[tuple[str, np.ndarray]]
Tensors = Mapping[str, np.ndarray]
Rule = Callable[[str, np.ndarray, dict[str, Any]], Named]

GROK = {
    "pre_attn_norm": "attn_norm",
    **{f"attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "attn.o_proj": "attn_output",
    "post_attn_norm": "attn_output_norm",
    "pre_moe_norm": "ffn_norm",
    "post_moe_norm": "post_ffw_norm",
    "moe_block.gate": "ffn_gate_inp",
    "moe_block.experts.linear": "ffn_gate_exps",
    "moe_block.experts.linear_v": "ffn_up_exps",
    "moe_block.experts.linear_1": "ffn_down_exps",
}
DEEPSEEK4 = {
    "attn.wq_a": "attn_q_a",
    "attn.wq_b": "attn_q_b",
    "attn.q_norm": "attn_q_a_norm",
    "attn.wkv": "attn_kv",
    "attn.norm": "attn_kv_a_norm",
    "attn.wo_a": "attn_output_a",
    "attn.wo_b": "attn_output_b",
    "attn.attn_sink": "attn_sinks",
    **{
        f"attn.{ours}compressor.{name}": f"{stored}_compressor_{part}"
        for ours, stored in (("", "attn"), ("indexer.", "indexer"))
        for name, part in (("wkv", "kv"), ("wgate", "gate"), ("norm", "norm"), ("ape", "ape"))
    },
    "attn.indexer.weights_proj": "indexer.proj",
    "attn.indexer.wq_b": "indexer.attn_q_b",
    "ffn.gate": "ffn_gate_inp",
    "ffn.gate.tid2eid": "ffn_gate_tid2eid",
    **{
        f"ffn.{ours}.{name}": f"ffn_{part}_{stored}"
        for ours, stored in (("experts", "exps"), ("shared_experts", "shexp"))
        for name, part in (("w1", "gate"), ("w2", "down"), ("w3", "up"))
    },
}
_MIXED = re.compile(r"(.*)\.(?:attn\.x|attention\.time_maa)_([wkvrga])")
_SMALL = re.compile(r"(.*\.attention)\.([wavg])_lora\.lora\.([02])\.(weight|bias)")


def numbers_of(arch: str, tensors: Tensors) -> dict[str, list[float]]:
    """Keys without the architecture's name: the numbers of an activation, layer by layer."""
    if arch != "apertus":
        return {}
    layers = sum(name.endswith("act_fn.beta") for name in tensors)
    return {
        f"xielu.{name}": [
            float(tensors[f"model.layers.{layer}.mlp.act_fn.{name}"].reshape(-1)[0]) for layer in range(layers)
        ]
        for name in ("alpha_p", "alpha_n", "beta", "eps")
    }


def fused(arch: str, tensors: Tensors) -> dict[str, np.ndarray]:
    """RWKV: the tensors with which a block mixes rows, in one tensor. RWKV-7: other numbers where layer 0 lacks its
    own."""
    if arch not in ("rwkv6", "rwkv7"):
        return dict(tensors)
    found: dict[str, np.ndarray] = {}
    mixed: dict[str, dict[str, np.ndarray]] = {}
    for name, values in tensors.items():
        way = _MIXED.fullmatch(name)
        if way is None:
            found[name] = values
        else:
            mixed.setdefault(name.split(".")[2], {})[way[2]] = values
    for layer, each in mixed.items():
        rows = [each[way].reshape(1, 1, -1) for way in ("wkvrg" if arch == "rwkv6" else "rwkvag")]
        found[f"blk.{layer}.time_mix_lerp_fused.weight"] = np.stack(rows)
    if arch == "rwkv7":
        own = {name: values for name, values in found.items() if ".layers.0.attn.a_lora" in name}
        found |= {name.replace("a_lora", "v_lora"): values for name, values in own.items()}
    return found


def _rwkv6(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
    if name.endswith(("time_maa_w1", "time_decay_w1", "time_decay_w2")):
        values = values.T
    if name.endswith("time_maa_w2"):
        values = values.swapaxes(1, 2)
    if name.endswith("time_decay") or ("time_maa_" in name and values.shape[:2] == (1, 1)):
        values = values.reshape(-1)
    if name.endswith(("attention.output.weight", "feed_forward.value.weight")) and config["rescale_every"]:
        values = values / np.float32(2 ** (int(name.split(".")[2]) // config["rescale_every"]))
    yield name if name.endswith(("weight", "bias")) else f"{name}.weight", values


def _rwkv7(name: str, values: np.ndarray, _: dict[str, Any]) -> Named:
    if name.startswith("blk."):
        yield name, values
        return
    name = name.replace(".ffn_norm", ".ln2").replace(".attn_norm", ".ln1").replace(".g_norm", ".ln_x")
    name = name.replace(".attn.", ".attention.").replace(".ffn.", ".feed_forward.")
    small = _SMALL.fullmatch(name)
    if small is not None:
        name = f"{small[1]}.{small[2]}{'0' if small[4] == 'bias' else '1' if small[3] == '0' else '2'}.weight"
    if name.endswith("r_k"):
        values = values.reshape(-1)
    yield name if name.endswith(("weight", "bias")) else f"{name}.weight", values


def _grok(name: str, values: np.ndarray, _: dict[str, Any]) -> Named:
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name)
    yield (name if found is None else f"blk.{found[1]}.{GROK[found[2]]}.weight"), values


def _deepseek4(name: str, values: np.ndarray, _: dict[str, Any]) -> Named:
    """The tensors, from the names that transformers writes."""
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(\.weight|\.bias)?", name)
    if found is None:
        outer = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm", "head.weight": "output"}
        yield f"{outer.get(name) or name.replace('model.hc_head.hc_', 'output_hc_')}.weight", values
    elif found[3] == ".bias":
        yield f"blk.{found[1]}.exp_probs_b.bias", values
    else:
        whole = values.astype(np.int32) if found[2].endswith("tid2eid") else values
        yield f"blk.{found[1]}.{DEEPSEEK4.get(found[2], found[2])}.weight", whole


def _without_numbers(name: str, values: np.ndarray, _: dict[str, Any]) -> Named:
    """Apertus."""
    if ".act_fn." not in name:
        yield name, values


def rules(states: Rule, latent: Rule) -> dict[str, Rule]:
    """The rules by architecture. states, latent: the usual rules of families that keep a state, and of latent
    attention."""

    def kimi(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
        """Filters have four axes, and transformers writes a dense block under the name of experts."""
        if name.endswith("conv1d.weight"):
            layer, part = name.split(".")[2], name.split(".")[-2][0]
            yield f"blk.{layer}.ssm_conv1d_{part}.weight", values.reshape(1, -1, 1, values.shape[-1])
            return
        yield from latent(re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name), values, config)

    def mimo2(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
        yield from states(f"{name}.weight" if name.endswith("sink_bias") else name, values, config)

    def mistral4(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
        stack = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        yield from latent(f"{name}.weight" if stack else name, values, config)

    def step35(name: str, values: np.ndarray, config: dict[str, Any]) -> Named:
        """Norms are stored as w - 1."""
        grown = values + 1 if name.endswith("norm.weight") else values
        yield from states(f"{name}.bias" if name.endswith("router_bias") else name, grown, config)

    return {
        "step35": step35,
        "deepseek4": _deepseek4,
        "apertus": _without_numbers,
        "grok": _grok,
        "kimi-linear": kimi,
        "mimo2": mimo2,
        "mistral4": mistral4,
        "rwkv6": _rwkv6,
        "rwkv7": _rwkv7,
    }
