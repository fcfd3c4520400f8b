"""Grok-1 in NumPy, after xAI's published JAX code (github.com/xai-org/grok-1, model.py): the judge of our model file.

It computes one position after the other, and one head and one expert at a time. It shares no code with the model that
it judges. A config and a model in transformers' form are around it, so that tests make checkpoints of it like of any
other model.
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


class Grok1Config(transformers.PretrainedConfig):
    """The fields that matter."""

    model_type = "grok-1"

    def __init__(self, **fields: Any) -> None:
        self.num_experts, self.num_experts_per_tok = 8, 2
        self.attn_output_multiplier, self.max_attn_value, self.rms_norm_eps = 0.2, 30.0, 1e-5
        self.embedding_multiplier_scale, self.output_multiplier_scale = 3.0, 0.6
        super().__init__(**{"architectures": ["Grok1ModelForCausalLM"], **fields})


def logits_of(tensors: Mapping[str, F64], config: Grok1Config, token_ids: list[int]) -> F64:
    """The logits (T, vocabulary) of one sequence."""
    x = tensors["model.embed_tokens.weight"][token_ids] * config.embedding_multiplier_scale
    for index in range(config.num_hidden_layers):
        own = {name.removeprefix(f"model.layers.{index}."): value for name, value in tensors.items()}
        x = x + _norm(
            _attention(_norm(x, own["pre_attn_norm.weight"], config), own, config), own["post_attn_norm.weight"], config
        )
        x = x + _norm(
            _experts(_norm(x, own["pre_moe_norm.weight"], config), own, config), own["post_moe_norm.weight"], config
        )
    last = _norm(x, tensors["model.norm.weight"], config)
    return last @ tensors["model.embed_tokens.weight"].T * config.output_multiplier_scale


def _norm(x: F64, scale: F64, config: Grok1Config) -> F64:
    return scale * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + config.rms_norm_eps)


def _turned(head: F64) -> F64:
    """Rotates (T, D) by positions. Elements i and i + D / 2 are a pair."""
    tokens, dim = head.shape
    angles = np.arange(tokens)[:, None] / 10_000.0 ** (np.arange(0, dim, 2) / dim)
    cos, sin = np.tile(np.cos(angles), 2), np.tile(np.sin(angles), 2)
    return head * cos + np.concatenate((-head[:, dim // 2 :], head[:, : dim // 2]), axis=1) * sin


def _attention(x: F64, own: Mapping[str, F64], config: Grok1Config) -> F64:
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    q, k, v = (x @ own[f"attn.{name}_proj.weight"].T for name in "qkv")
    dim, seen = q.shape[1] // heads, np.zeros_like(q)
    for head in range(heads):
        of_kv = slice(head // (heads // kv_heads) * dim, head // (heads // kv_heads) * dim + dim)
        of_q = slice(head * dim, head * dim + dim)
        queries, keys = _turned(q[:, of_q]), _turned(k[:, of_kv])
        for row in range(len(x)):
            scores = keys[: row + 1] @ queries[row] * config.attn_output_multiplier
            scores = config.max_attn_value * np.tanh(scores / config.max_attn_value)
            weights = np.exp(scores - scores.max())
            seen[row, of_q] = weights / weights.sum() @ v[: row + 1, of_kv]
    return seen @ own["attn.o_proj.weight"].T


def _experts(x: F64, own: Mapping[str, F64], config: Grok1Config) -> F64:
    out = np.zeros_like(x)
    for row, line in enumerate(x):
        logits = own["moe_block.gate.weight"] @ line
        shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        for expert in np.argsort(-shares, kind="stable")[: config.num_experts_per_tok]:
            gate, up, down = (
                own[f"moe_block.experts.{expert}.{name}.weight"] for name in ("linear", "linear_v", "linear_1")
            )
            before = gate @ line
            act = before * (1 + np.tanh(np.sqrt(2 / np.pi) * (before + 0.044715 * before**3))) / 2
            out[row] += shares[expert] * (down @ (act * (up @ line)))
    return out


class Grok1ModelForCausalLM(transformers.PreTrainedModel):
    """Has the parameters; the arithmetic is above."""

    config_class = Grok1Config

    def __init__(self, config: Grok1Config) -> None:
        super().__init__(config)
        hidden, inner = config.hidden_size, config.intermediate_size
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(config.vocab_size, hidden)
        self.model.layers = torch.nn.ModuleList(_layer(config, hidden, inner) for _ in range(config.num_hidden_layers))
        self.model.norm = torch.nn.RMSNorm(hidden)
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embed_tokens

    def _init_weights(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            module.weight.data.normal_(0.0, 0.2)

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        tensors = {name: value.double().numpy() for name, value in self.state_dict().items()}
        found = logits_of(tensors, self.config, input_ids[0].tolist())
        return CausalLMOutput(logits=torch.from_numpy(found.astype(np.float32))[None])


def _layer(config: Grok1Config, hidden: int, inner: int) -> torch.nn.Module:
    layer, dim = torch.nn.Module(), hidden // config.num_attention_heads
    layer.attn, layer.moe_block = torch.nn.Module(), torch.nn.Module()
    for name, rows in (("q", hidden), ("k", dim * config.num_key_value_heads), ("v", dim * config.num_key_value_heads)):
        setattr(layer.attn, f"{name}_proj", torch.nn.Linear(hidden, rows, bias=False))
    layer.attn.o_proj = torch.nn.Linear(hidden, hidden, bias=False)
    layer.moe_block.gate = torch.nn.Linear(hidden, config.num_experts, bias=False)
    layer.moe_block.experts = torch.nn.ModuleList(_expert(hidden, inner) for _ in range(config.num_experts))
    for name in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
        setattr(layer, name, torch.nn.RMSNorm(hidden))
    return layer


def _expert(hidden: int, inner: int) -> torch.nn.Module:
    made = torch.nn.Module()
    made.linear, made.linear_v = (torch.nn.Linear(hidden, inner, bias=False) for _ in range(2))
    made.linear_1 = torch.nn.Linear(inner, hidden, bias=False)
    return made
