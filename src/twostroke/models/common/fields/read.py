"""Reading the config of a dense decoder into the blocks of this folder, under the usual names of fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.decoder import Decoder
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import (
    activation,
    head_dim,
    kv_heads,
    read_facts,
    windows_by_layer,
    with_silent,
)
from twostroke.models.common.registry import CommonFacts
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import MAX_POSITIONS

SILENT: Mapping[str, object] = {
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
"""The defaults of transformers for most families, for fields that config.json does not have."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The blocks of a model, and its config with what is silent."""

    fields: Fields
    facts: CommonFacts
    heads: Heads
    feed: Feed
    decoder: Decoder

    @property
    def norm(self) -> Norm:
        """The norm of the family."""
        return self.decoder.norm


def read_parts(
    fields: Fields,
    silent: Mapping[str, object],
    *,
    kv_absent: int | None = None,
    kind: NormKind = NormKind.RMS,
    plus: float = 0.0,
    eps: str = "rms_norm_eps",
    act: tuple[str, str] = ("hidden_act", "silu"),
) -> Parts:
    """silent: the defaults of transformers for this family, besides SILENT. kv_absent: the number of KV heads where the
    config has none; None for as many as query heads. kind, plus, eps: the kind of all norms, what is added to their
    weights, and the config field of their epsilon. act: the config field of the activation, and its default.
    """
    fields = with_silent(fields, {**SILENT, **silent})
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=2048, ignored=("lm_head.weight",) if tied else ())
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number(eps, 1e-12, 0.1), kind, plus)
    heads = Heads(
        facts.hidden_size,
        num_heads,
        kv_heads(fields, num_heads, kv_absent),
        head_dim(fields, facts.hidden_size, num_heads),
    )
    inner = fields.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(facts.hidden_size, inner, activation(fields, *act))
    return Parts(fields, facts, heads, feed, Decoder(facts.vocab_size, facts.hidden_size, facts.num_layers, norm, tied))


def pattern_windows(fields: Fields, layers: int, window: int, pattern: int) -> tuple[int, ...]:
    """layer_types, or where it is absent a window in all layers but every `pattern`-th (0: in none)."""
    usual = tuple(window if pattern and (index + 1) % pattern else 0 for index in range(layers))
    return windows_by_layer(fields, layers, window, usual)


def window_of(fields: Fields, absent: int) -> int:
    """sliding_window; `absent` where the config does not have the field, 0 where it is null."""
    found = fields.optional_integer("sliding_window", 1, MAX_POSITIONS)
    return found or (0 if fields.has("sliding_window") else absent)
