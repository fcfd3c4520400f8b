"""Judges of encoders that transformers does not have, after their published code: Nomic v2 with experts, NeoBERT and
Jina 2.

They are written in torch, one expert and one head after the other, and share no code with the models that they judge.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutput


def _turned(x: torch.Tensor, theta: float, neighbours: bool) -> torch.Tensor:
    """Rotates x (T, D) of one head, each pair by its position. neighbours: pairs are next to each other, else half a
    head apart."""
    half = x.shape[1] // 2
    rates = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(len(x), dtype=torch.float64)[:, None] * rates
    first, second = (x[:, 0::2], x[:, 1::2]) if neighbours else (x[:, :half], x[:, half:])
    made = torch.complex(first.double(), second.double()) * torch.polar(torch.ones_like(angles), angles)
    parts = (made.real, made.imag)
    return (torch.stack(parts, 2).flatten(1) if neighbours else torch.cat(parts, 1)).float()


def _seen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, theta: float, neighbours: bool) -> torch.Tensor:
    """What one head reads from all positions, (T, D)."""
    scores = _turned(q, theta, neighbours) @ _turned(k, theta, neighbours).T / math.sqrt(q.shape[1])
    return scores.softmax(1) @ v


class Judge(transformers.PreTrainedModel):
    """A model for one text at a time, with random numbers of the config's deviation."""

    def __init__(self, config: transformers.PretrainedConfig) -> None:
        super().__init__(config)
        self.build(config)
        self.post_init()
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.2)

    def build(self, config: Any) -> None:
        """The modules."""
        raise NotImplementedError

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """The last layer's rows of one text."""
        raise NotImplementedError

    def get_input_embeddings(self) -> nn.Module:
        return next(module for module in self.modules() if isinstance(module, nn.Embedding))

    def _init_weights(self, module: nn.Module) -> None:
        """Keeps the numbers of `__init__`."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=torch.stack([self.rows(ids) for ids in input_ids]))


class NomicMoeConfig(transformers.PretrainedConfig):
    """The fields that matter, under the names of the published config.json."""

    model_type = "nomic_bert"

    def __init__(self, **fields: Any) -> None:
        sizes = {"vocab_size": 199, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 56, "n_positions": 256}
        biases = {"qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True}
        experts = {"num_experts": 5, "moe_top_k": 2, "moe_every_n_layers": 2}
        rest = {"activation_function": "gelu", "type_vocab_size": 1, "rotary_emb_base": 1e4, "layer_norm_epsilon": 1e-5}
        named = {"architectures": ["NomicBertModel"], "tie_word_embeddings": False}
        super().__init__(**{**sizes, **biases, **experts, **rest, **named, **fields})


class NomicExperts(nn.Module):
    """The router, the two tensors of all experts, and the bias of all."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.router, self.experts, self.chosen = nn.Module(), nn.Module(), config.moe_top_k
        self.router.layer = nn.Linear(config.n_embd, config.num_experts, bias=False)
        self.experts.mlp = nn.Module()
        for name in ("w1", "w2"):
            rows = torch.zeros(config.num_experts * config.n_inner, config.n_embd)
            self.experts.mlp.register_parameter(name, nn.Parameter(rows))
        self.experts.bias = nn.Parameter(torch.zeros(config.n_embd))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = self.router.layer.out_features
        weights, numbers = self.router.layer(x).softmax(1).topk(self.chosen, dim=1)
        first, second = (tensor.chunk(count) for tensor in (self.experts.mlp.w1, self.experts.mlp.w2))
        out = torch.zeros_like(x)
        for row in range(len(x)):
            for weight, expert in zip(weights[row], numbers[row].tolist(), strict=True):
                out[row] += weight * (functional.gelu(first[expert] @ x[row]) @ second[expert])
        return out + self.experts.bias


class NomicFeed(nn.Module):
    """Two products with biases."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(config.n_embd, config.n_inner), nn.Linear(config.n_inner, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class NomicBertModel(Judge):
    """Nomic v2."""

    config_class = NomicMoeConfig

    def build(self, config: NomicMoeConfig) -> None:
        width = config.n_embd
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.embeddings.token_type_embeddings = nn.Embedding(1, width)
        self.emb_ln = nn.LayerNorm(width, config.layer_norm_epsilon)
        self.encoder.layers = nn.ModuleList()
        for index in range(config.n_layer):
            layer = nn.Module()
            layer.attn = nn.Module()
            layer.attn.Wqkv, layer.attn.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            layer.norm1, layer.norm2 = (nn.LayerNorm(width, config.layer_norm_epsilon) for _ in range(2))
            layer.mlp = NomicExperts(config) if index % config.moe_every_n_layers == 1 else NomicFeed(config)
            self.encoder.layers.append(layer)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.emb_ln(self.embeddings.word_embeddings(ids) + self.embeddings.token_type_embeddings.weight[0])
        heads, theta = self.config.n_head, self.config.rotary_emb_base
        for layer in self.encoder.layers:
            q, k, v = (part.chunk(heads, 1) for part in layer.attn.Wqkv(x).chunk(3, 1))
            seen = torch.cat([_seen(q[head], k[head], v[head], theta, False) for head in range(heads)], 1)
            x = layer.norm1(x + layer.attn.out_proj(seen))
            x = layer.norm2(x + layer.mlp(x))
        return x


class NeoBertConfig(transformers.PretrainedConfig):
    """The fields that matter."""

    model_type = "neobert"

    def __init__(self, **fields: Any) -> None:
        sizes = {"vocab_size": 199, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
        rest = {"intermediate_size": 100, "norm_eps": 1e-5, "max_length": 256, "architectures": ["NeoBERT"]}
        super().__init__(**{**sizes, **rest, "tie_word_embeddings": False, **fields})


class NeoBERT(Judge):
    """NeoBERT without its head."""

    config_class = NeoBertConfig

    def build(self, config: NeoBertConfig) -> None:
        width = config.hidden_size
        inner = math.ceil(int(2 * config.intermediate_size / 3) / 8) * 8
        self.encoder = nn.Embedding(config.vocab_size, width)
        self.transformer_encoder = nn.ModuleList()
        for _ in range(config.num_hidden_layers):
            layer = nn.Module()
            layer.qkv, layer.wo = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            layer.ffn = nn.Module()
            layer.ffn.w12 = nn.Linear(width, 2 * inner, bias=False)
            layer.ffn.w3 = nn.Linear(inner, width, bias=False)
            layer.attention_norm, layer.ffn_norm = (nn.RMSNorm(width, config.norm_eps) for _ in range(2))
            self.transformer_encoder.append(layer)
        self.layer_norm = nn.RMSNorm(width, config.norm_eps)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.encoder(ids)
        for layer in self.transformer_encoder:
            each = layer.qkv(layer.attention_norm(x)).chunk(self.config.num_attention_heads, 1)
            x = x + layer.wo(torch.cat([_seen(*head.chunk(3, 1), 1e4, True) for head in each], 1))
            gate, up = layer.ffn.w12(layer.ffn_norm(x)).chunk(2, 1)
            x = x + layer.ffn.w3(functional.silu(gate) * up)
        return self.layer_norm(x)


class JinaBertConfig(transformers.PretrainedConfig):
    """The fields that matter."""

    model_type = "bert"

    def __init__(self, **fields: Any) -> None:
        sizes = {"vocab_size": 199, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
        rest = {"intermediate_size": 56, "layer_norm_eps": 1e-12, "max_position_embeddings": 128, "type_vocab_size": 2}
        words = {"feed_forward_type": "geglu", "position_embedding_type": "alibi", "architectures": ["JinaBertModel"]}
        super().__init__(**{**sizes, **rest, **words, "tie_word_embeddings": False, **fields})


class JinaBertModel(Judge):
    """Jina embeddings 2."""

    config_class = JinaBertConfig

    def build(self, config: JinaBertConfig) -> None:
        width, eps = config.hidden_size, config.layer_norm_eps
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.embeddings.token_type_embeddings = nn.Embedding(2, width)
        self.embeddings.LayerNorm = nn.LayerNorm(width, eps)
        self.encoder.layer = nn.ModuleList()
        for _ in range(config.num_hidden_layers):
            layer = nn.Module()
            layer.attention, layer.mlp = nn.Module(), nn.Module()
            layer.attention.self, layer.attention.output = nn.Module(), nn.Module()
            for name in ("query", "key", "value"):
                layer.attention.self.add_module(name, nn.Linear(width, width))
            layer.attention.output.dense = nn.Linear(width, width)
            layer.attention.output.LayerNorm = nn.LayerNorm(width, eps)
            layer.mlp.gated_layers = nn.Linear(width, 2 * config.intermediate_size, bias=False)
            layer.mlp.wo = nn.Linear(config.intermediate_size, width)
            layer.mlp.layernorm = nn.LayerNorm(width, eps)
            self.encoder.layer.append(layer)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        own, heads = self.embeddings, self.config.num_attention_heads
        x = own.LayerNorm(own.word_embeddings(ids) + own.token_type_embeddings.weight[0])
        away = (torch.arange(len(ids))[None, :] - torch.arange(len(ids))[:, None]).abs()
        for layer in self.encoder.layer:
            seen = []
            parts = [getattr(layer.attention.self, name)(x).chunk(heads, 1) for name in ("query", "key", "value")]
            for head, (q, k, v) in enumerate(zip(*parts, strict=True)):
                scores = q @ k.T / math.sqrt(q.shape[1]) - 2.0 ** (-8 * (head + 1) / heads) * away
                seen.append(scores.softmax(1) @ v)
            x = layer.attention.output.LayerNorm(x + layer.attention.output.dense(torch.cat(seen, 1)))
            gate, up = layer.mlp.gated_layers(x).chunk(2, 1)
            x = layer.mlp.layernorm(x + layer.mlp.wo(functional.gelu(gate) * up))
        return x


JUDGES: dict[type[transformers.PretrainedConfig], type[Judge]] = {
    NomicMoeConfig: NomicBertModel,
    NeoBertConfig: NeoBERT,
    JinaBertConfig: JinaBertModel,
}
"""The judge of a config, for architectures that transformers does not have or whose name it gives to another class."""
