"""Reading the configs of Llama, Mistral, Qwen2 and Qwen3: the fields that they share, in their own defaults.

Absent optional fields take the family's own default in transformers. Unknown fields are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.families.dense import Dense
from twostroke.models.common.fields.fields import head_dim, kv_heads, read_facts, silu_only
from twostroke.models.common.registry import CommonFacts
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import MAX_POSITIONS, rope_from_config


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of transformers for fields that config.json does not have. kv_heads: None for as many as query
    heads.
    """

    max_positions: int
    kv_heads: int | None = None
    sliding_window: int | None = None
    head_dim: int | None = None


def read_dense(fields: Fields, defaults: Defaults) -> tuple[CommonFacts, Dense]:
    """The facts and the shape; biases, head norms and windows are the caller's to set."""
    facts = read_facts(fields, positions=defaults.max_positions, ignored=("lm_head.weight",) if _tied(fields) else ())
    silu_only(fields)
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    dim = head_dim(fields, facts.hidden_size, num_heads, defaults.head_dim)
    return facts, Dense(
        vocab_size=facts.vocab_size,
        hidden_size=facts.hidden_size,
        num_layers=facts.num_layers,
        num_heads=num_heads,
        num_kv_heads=kv_heads(fields, num_heads, defaults.kv_heads),
        head_dim=dim,
        intermediate_size=fields.integer("intermediate_size", 1, 1 << 20),
        eps=fields.number("rms_norm_eps", 1e-12, 0.1, default=1e-6),
        rope=rope_from_config(fields, dim, facts.max_positions),
        windows=(0,) * facts.num_layers,
        tied=_tied(fields),
    )


def sliding_window(fields: Fields, defaults: Defaults) -> int:
    """The window that the config names; 0 for none."""
    absent = None if fields.has("sliding_window") else defaults.sliding_window
    return fields.optional_integer("sliding_window", 0, MAX_POSITIONS) or absent or 0


def upper_windows(fields: Fields, defaults: Defaults, num_layers: int) -> tuple[int, tuple[int, ...]]:
    """Qwen's rule: layers from max_window_layers on slide where use_sliding_window says so. -> window, one a layer."""
    window = sliding_window(fields, defaults) if fields.boolean("use_sliding_window", False) else 0
    full = fields.integer("max_window_layers", 0, 1 << 20, default=28)
    return window, tuple(window if layer >= full else 0 for layer in range(num_layers))


def _tied(fields: Fields) -> bool:
    return fields.boolean("tie_word_embeddings", False)
