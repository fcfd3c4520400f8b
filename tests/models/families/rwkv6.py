"""RWKV-6 in NumPy, after the paper's equations (Peng et al. 2024), under the names of the published conversions.

It computes one position after the other and one head at a time, and shares no code with the model that it judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from transformers.modeling_outputs import CausalLMOutput

from tests.models.families.rwkv import F64, _norm, _sigmoid

WAYS = "wkvrg"


class Rwkv6Config(transformers.PretrainedConfig):
    """The fields that matter."""

    model_type = "rwkv6"

    def __init__(self, **fields: Any) -> None:
        self.vocab_size, self.hidden_size, self.num_hidden_layers, self.head_size = 199, 60, 3, 20
        self.intermediate_size, self.layer_norm_epsilon, self.head_size_divisor = 112, 1e-5, 8
        super().__init__(**{"architectures": ["Rwkv6ForCausalLM"], "tie_word_embeddings": False, **fields})


def _time_mix(own: Mapping[str, F64], h: F64, before: F64, state: F64, config: Rwkv6Config) -> F64:
    """Computes one token and changes state (heads, keys, values)."""
    apart = before - h
    small = np.tanh((h + apart * own["time_maa_x"].reshape(-1)) @ own["time_maa_w1"]).reshape(5, -1)
    w, k, v, r, g = (
        h + apart * (own[f"time_maa_{way}"].reshape(-1) + small[index] @ own["time_maa_w2"][index])
        for index, way in enumerate(WAYS)
    )
    raw = own["time_decay"].reshape(-1) + np.tanh(w @ own["time_decay_w1"]) @ own["time_decay_w2"]
    names = ("key", "value", "receptance", "gate")
    k, v, r, g = (own[f"{name}.weight"] @ x for name, x in zip(names, (k, v, r, g), strict=True))
    seen, size = np.zeros_like(v), config.head_size
    for head in range(len(v) // size):
        at = slice(head * size, (head + 1) * size)
        made = np.outer(k[at], v[at])
        out = r[at] @ (own["time_faaaa"][head][:, None] * made + state[head])
        state[head] = np.exp(-np.exp(raw[at]))[:, None] * state[head] + made
        centred = out - out.mean()
        eps = config.layer_norm_epsilon * config.head_size_divisor**2
        seen[at] = centred / np.sqrt((centred**2).mean() + eps) * own["ln_x.weight"][at] + own["ln_x.bias"][at]
    found: F64 = own["output.weight"] @ (seen * g * _sigmoid(g))
    return found


def logits_of(tensors: Mapping[str, F64], config: Rwkv6Config, token_ids: list[int]) -> F64:
    """The logits (T, vocabulary) of one sequence."""
    layers, heads, eps = config.num_hidden_layers, config.hidden_size // config.head_size, config.layer_norm_epsilon
    owns = [
        {name.removeprefix(f"rwkv.blocks.{index}."): value for name, value in tensors.items()}
        for index in range(layers)
    ]
    states, before = (
        np.zeros((layers, heads, config.head_size, config.head_size)),
        np.zeros((layers, 2, config.hidden_size)),
    )
    found = []
    for token in token_ids:
        x = _norm(tensors["rwkv.embeddings.weight"][token], owns[0], "pre_ln", eps)
        for index, own in enumerate(owns):
            h = _norm(x, own, "ln1", eps)
            attention = {name.removeprefix("attention."): value for name, value in own.items()}
            x = x + _time_mix(attention, h, before[index, 0], states[index], config)
            before[index, 0] = h
            h = _norm(x, own, "ln2", eps)
            k, r = (h + (before[index, 1] - h) * own[f"feed_forward.time_maa_{way}"].reshape(-1) for way in "kr")
            before[index, 1] = h
            made = own["feed_forward.value.weight"] @ np.maximum(own["feed_forward.key.weight"] @ k, 0) ** 2
            x = x + _sigmoid(own["feed_forward.receptance.weight"] @ r) * made
        found.append(tensors["head.weight"] @ _norm(x, tensors, "rwkv.ln_out", eps))
    return np.array(found)


class Rwkv6ForCausalLM(transformers.PreTrainedModel):
    """Has the tensors, and the arithmetic above."""

    config_class = Rwkv6Config
    base_model_prefix = "rwkv"

    def __init__(self, config: Rwkv6Config) -> None:
        super().__init__(config)
        self.rwkv = torch.nn.Module()
        self.rwkv.embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.rwkv.blocks = torch.nn.ModuleList(_layer(config, index) for index in range(config.num_hidden_layers))
        self.rwkv.ln_out = torch.nn.LayerNorm(config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.rwkv.embeddings

    def _init_weights(self, module: torch.nn.Module) -> None:
        for _name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1:
                parameter.data.normal_(0.0, 0.3)

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        tensors = {name: value.double().numpy() for name, value in self.state_dict().items()}
        found = logits_of(tensors, self.config, input_ids[0].tolist())
        return CausalLMOutput(logits=torch.from_numpy(found.astype(np.float32))[None])


def _layer(config: Rwkv6Config, index: int) -> torch.nn.Module:
    layer, hidden, inner = torch.nn.Module(), config.hidden_size, config.intermediate_size
    layer.attention, layer.feed_forward = torch.nn.Module(), torch.nn.Module()
    for name in (*(("pre_ln",) if index == 0 else ()), "ln1", "ln2"):
        setattr(layer, name, torch.nn.LayerNorm(hidden))
    shapes = {f"time_maa_{way}": (1, 1, hidden) for way in "x" + WAYS}
    shapes |= {"time_maa_w1": (hidden, 160), "time_maa_w2": (5, 32, hidden), "time_decay": (1, 1, hidden)}
    shapes |= {"time_decay_w1": (hidden, 64), "time_decay_w2": (64, hidden)}
    shapes |= {"time_faaaa": (hidden // config.head_size, config.head_size)}
    for name, shape in shapes.items():
        setattr(layer.attention, name, torch.nn.Parameter(torch.zeros(shape)))
    for name in ("receptance", "key", "value", "gate", "output"):
        setattr(layer.attention, name, torch.nn.Linear(hidden, hidden, bias=False))
    layer.attention.ln_x = torch.nn.GroupNorm(hidden // config.head_size, hidden)
    for way in "kr":
        setattr(layer.feed_forward, f"time_maa_{way}", torch.nn.Parameter(torch.zeros(1, 1, hidden)))
    layer.feed_forward.key = torch.nn.Linear(hidden, inner, bias=False)
    layer.feed_forward.receptance = torch.nn.Linear(hidden, hidden, bias=False)
    layer.feed_forward.value = torch.nn.Linear(inner, hidden, bias=False)
    return layer
