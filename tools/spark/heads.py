"""Medusa heads and an EAGLE layer, which guess several of spark's next tokens from its last hidden state.

Names of tensors are those of the published checkpoints, so that export is a copy.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from tools.spark.model import MLP, SPARK, Attention, ModelConfig, RMSNorm, rope_tables
from torch import Tensor, nn


@dataclass(frozen=True)
class MedusaConfig:
    """Cai et al. 2024. Every head uses the model's own output matrix (`original_lm_head`), because that matrix is a
    fifth of spark's parameters."""

    num_heads: int = 3
    num_layers: int = 4


class ResBlock(nn.Module):
    """x + silu(W x + b), W zero at the beginning."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> the same shape."""
        return x + F.silu(self.linear(x))


class Medusa(nn.Module):
    """Head k guesses the token k + 2 places after the position of the hidden state."""

    def __init__(self, config: MedusaConfig, size: int) -> None:
        super().__init__()
        self.config = config
        self.heads = nn.ModuleList(
            [nn.Sequential(*(ResBlock(size) for _ in range(config.num_layers))) for _ in range(config.num_heads)]
        )

    def forward(self, hidden: Tensor, _: Tensor) -> list[Tensor]:
        """Hidden states [batch, time, size] -> for each head the input of the output matrix, [batch, time, size]."""
        return [head(hidden) for head in self.heads]

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors by their names in medusa_lm_head.safetensors."""
        return {name.removeprefix("heads."): tensor for name, tensor in self.state_dict().items()}

    def config_json(self) -> dict[str, Any]:
        """Returns the content of config.json."""
        return {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "base_model_name_or_path": "spark",
            "medusa_num_heads": self.config.num_heads,
            "medusa_num_layers": self.config.num_layers,
            "hidden_size": SPARK.hidden_size,
            "vocab_size": SPARK.vocab_size,
            "original_lm_head": True,
        }


EAGLE = replace(SPARK, num_hidden_layers=1, intermediate_size=384)
UNROLLED = 3


class Eagle(nn.Module):
    """Li et al. 2024: one layer without its first norm over the next token's embedding and the hidden state.

    Its output at a position is the hidden state of the next position. It is trained on its own outputs, too, because it
    reads them when it guesses several tokens in a row.
    """

    def __init__(self, config: ModelConfig, embedding: Tensor) -> None:
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.fc = nn.Linear(2 * size, size)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(size, config.rms_norm_eps)
        self.mlp = MLP(config)
        cos, sin = rope_tables(config)
        for name, table in (("cos", cos), ("sin", sin), ("embedding", embedding)):
            self.register_buffer(name, table, persistent=False)

    def _layer(self, ids: Tensor, hidden: Tensor) -> Tensor:
        assert isinstance(self.cos, Tensor) and isinstance(self.sin, Tensor) and isinstance(self.embedding, Tensor)
        x = self.fc(torch.cat([F.embedding(ids, self.embedding), hidden], dim=-1))
        x = x + self.self_attn(x, self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out

    def forward(self, hidden: Tensor, ids: Tensor) -> list[Tensor]:
        """Hidden states [batch, time, size], token ids [batch, time] -> for each round the states [batch, time, size]
        predicted for the next position. Each later round reads the states that the round before predicted. In round i
        (from 0), the first i positions have no such state."""
        nexts = F.pad(ids[:, 1:], (0, 1))
        found: list[Tensor] = []
        states = hidden
        for _ in range(UNROLLED):
            states = self._layer(nexts, states)
            found.append(states)
            states = F.pad(states[:, :-1], (0, 0, 1, 0))
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors by their names in an EAGLE checkpoint."""
        return {
            name if name.startswith("fc.") else f"layers.0.{name}": tensor for name, tensor in self.state_dict().items()
        }

    def config_json(self) -> dict[str, Any]:
        """Returns the content of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "bias": True,
            **self.config.to_dict(),
        }
