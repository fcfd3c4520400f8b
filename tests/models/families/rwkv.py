"""RWKV-7 in NumPy, after the paper's equations (Peng et al. 2025), with the names of the published code.

It computes one position after the other and one head at a time, and shares no code with the model that it judges. A
config and a model in transformers' form are around it, under the names of flash-linear-attention's conversions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers.modeling_outputs import CausalLMOutput

F64 = NDArray[np.float64]
RANKS = {"w": 6, "a": 5, "g": 7, "v": 3}


class Rwkv7Config(transformers.PretrainedConfig):
    """The fields that matter."""

    model_type = "rwkv7"

    def __init__(self, **fields: Any) -> None:
        self.vocab_size, self.hidden_size, self.num_hidden_layers, self.head_dim = 199, 60, 3, 20
        self.intermediate_size, self.norm_eps, self.hidden_act = 112, 1e-5, "sqrelu"
        self.decay_low_rank_dim, self.a_low_rank_dim = RANKS["w"], RANKS["a"]
        self.gate_low_rank_dim, self.v_low_rank_dim = RANKS["g"], RANKS["v"]
        super().__init__(**{"architectures": ["RWKV7ForCausalLM"], "tie_word_embeddings": False, **fields})


def _norm(x: F64, own: Mapping[str, F64], name: str, eps: float) -> F64:
    apart = x - x.mean(axis=-1, keepdims=True)
    made: F64 = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + eps)
    return made * own[f"{name}.weight"] + own[f"{name}.bias"]


def _sigmoid(x: F64) -> F64:
    return 1 / (1 + np.exp(-x))


def _time_mix(own: Mapping[str, F64], h: F64, before: F64, first: F64 | None, state: F64, config: Rwkv7Config) -> Any:
    """Computes one token and changes state (heads, values, keys). Returns the output and the values."""

    def mixed(way: str) -> F64:
        return h + (before - h) * own[f"attn.x_{way}"].reshape(-1)

    def small(name: str, x: F64, function: Any) -> F64:
        made: F64 = own[f"attn.{name}_lora.lora.2.weight"] @ function(own[f"attn.{name}_lora.lora.0.weight"] @ x)
        return made + own.get(f"attn.{name}_lora.lora.2.bias", np.float64(0))

    r, k, v = (own[f"attn.{way}_proj.weight"] @ mixed(way) for way in "rkv")
    decay = np.exp(-np.exp(-0.5) * _sigmoid(small("w", mixed("w"), np.tanh)))
    rate = _sigmoid(small("a", mixed("a"), lambda x: x))
    gate = small("g", mixed("g"), _sigmoid)
    if first is not None:
        v = v + (first - v) * _sigmoid(small("v", mixed("v"), lambda x: x))
    key = k * (1 + (rate - 1) * own["attn.k_a"])
    seen, dim = np.zeros_like(v), config.head_dim
    for head in range(len(v) // dim):
        at = slice(head * dim, (head + 1) * dim)
        removed = (k * own["attn.k_k"])[at]
        removed = removed / np.linalg.norm(removed)
        state[head] = state[head] * decay[at][None, :] - np.outer(state[head] @ removed, removed * rate[at])
        state[head] += np.outer(v[at], key[at])
        made = state[head] @ r[at]
        apart = made - made.mean()
        made = apart / np.sqrt((apart**2).mean() + dim * config.norm_eps)
        made = made * own["attn.g_norm.weight"][at] + own["attn.g_norm.bias"][at]
        seen[at] = made + (r[at] * key[at] * own["attn.r_k"][head]).sum() * v[at]
    return own["attn.o_proj.weight"] @ (seen * gate), v


def logits_of(tensors: Mapping[str, F64], config: Rwkv7Config, token_ids: list[int]) -> F64:
    """The logits (T, vocabulary) of one sequence."""
    layers, heads, dim = config.num_hidden_layers, config.hidden_size // config.head_dim, config.head_dim
    owns = [
        {name.removeprefix(f"model.layers.{index}."): value for name, value in tensors.items()}
        for index in range(layers)
    ]
    states = np.zeros((layers, heads, dim, dim))
    before = np.zeros((layers, 2, config.hidden_size))
    found = []
    for token in token_ids:
        x, first = _norm(tensors["model.embeddings.weight"][token], owns[0], "pre_norm", config.norm_eps), None
        for index, own in enumerate(owns):
            h = _norm(x, own, "attn_norm", config.norm_eps)
            made, values = _time_mix(own, h, before[index, 0], first, states[index], config)
            first = values if first is None else first
            before[index, 0], x = h, x + made
            h = _norm(x, own, "ffn_norm", config.norm_eps)
            mixed = h + (before[index, 1] - h) * own["ffn.x_k"]
            before[index, 1] = h
            x = x + own["ffn.value.weight"] @ np.maximum(own["ffn.key.weight"] @ mixed, 0) ** 2
        found.append(tensors["lm_head.weight"] @ _norm(x, tensors, "model.norm", config.norm_eps))
    return np.array(found)


class RWKV7ForCausalLM(transformers.PreTrainedModel):
    """Has the tensors, and the arithmetic above."""

    config_class = Rwkv7Config
    base_model_prefix = "model"

    def __init__(self, config: Rwkv7Config) -> None:
        super().__init__(config)
        self.model = torch.nn.Module()
        self.model.embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = torch.nn.ModuleList(_layer(config, index) for index in range(config.num_hidden_layers))
        self.model.norm = torch.nn.LayerNorm(config.hidden_size)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embeddings

    def _init_weights(self, module: torch.nn.Module) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1 or name.startswith(("x_", "k_")):
                parameter.data.normal_(0.0, 0.3)

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        tensors = {name: value.double().numpy() for name, value in self.state_dict().items()}
        found = logits_of(tensors, self.config, input_ids[0].tolist())
        return CausalLMOutput(logits=torch.from_numpy(found.astype(np.float32))[None])


def _small(hidden: int, rank: int, biased: bool) -> torch.nn.Module:
    made = torch.nn.Module()
    made.lora = torch.nn.ModuleDict(
        {"0": torch.nn.Linear(hidden, rank, bias=False), "2": torch.nn.Linear(rank, hidden, bias=biased)}
    )
    return made


def _layer(config: Rwkv7Config, index: int) -> torch.nn.Module:
    layer, hidden, parameter = torch.nn.Module(), config.hidden_size, torch.nn.Parameter
    layer.attn, layer.ffn = torch.nn.Module(), torch.nn.Module()
    for name in (*(("pre_norm",) if index == 0 else ()), "attn_norm", "ffn_norm"):
        setattr(layer, name, torch.nn.LayerNorm(hidden))
    for way in "rwkvag":
        setattr(layer.attn, f"x_{way}", parameter(torch.zeros(1, 1, hidden)))
    for name in ("r", "k", "v", "o"):
        setattr(layer.attn, f"{name}_proj", torch.nn.Linear(hidden, hidden, bias=False))
    for name, rank in RANKS.items():
        if name != "v" or index:
            setattr(layer.attn, f"{name}_lora", _small(hidden, rank, name != "g"))
    layer.attn.k_k, layer.attn.k_a = parameter(torch.ones(hidden)), parameter(torch.ones(hidden))
    layer.attn.r_k = parameter(torch.zeros(hidden // config.head_dim, config.head_dim))
    layer.attn.g_norm = torch.nn.GroupNorm(hidden // config.head_dim, hidden)
    inner = config.intermediate_size or 4 * hidden
    layer.ffn.x_k = parameter(torch.zeros(hidden))
    layer.ffn.key = torch.nn.Linear(hidden, inner, bias=False)
    layer.ffn.value = torch.nn.Linear(inner, hidden, bias=False)
    return layer
