"""Reads the config of a dense decoder: the sizes and settings of its attention, feed-forward block and decoder, from
the field names that most families use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.decoder import Decoder
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import (
    activation,
    head_dim,
    kv_heads,
    one_window,
    read_facts,
    windows_by_layer,
    with_silent,
)
from twostroke.models.common.registry import CommonFacts
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import MAX_POSITIONS, RopeSpec, rope_from_config

SILENT: Mapping[str, object] = {
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
"""The defaults of transformers for most families, for fields that config.json does not have."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The sizes and settings of a dense decoder, read from its config. fields: the config with the defaults filled in.
    heads: attention. feed: the feed-forward block. decoder: the embedding, the last norm and the head."""

    fields: Fields
    facts: CommonFacts
    heads: Heads
    feed: Feed
    decoder: Decoder

    @property
    def norm(self) -> Norm:
        """The norm (kind and epsilon) that all layers of the model use."""
        return self.decoder.norm

    def rope(self, *, partial: float | None = None, theta: float = 10_000.0) -> RopeSpec:
        """Returns the rotation of the heads. partial: the share of a head that is rotated where the config does not
        have the field; None for all of it, whatever the field is. theta: the base where the config does not have the
        field."""
        positions = self.facts.max_positions
        return rope_from_config(self.fields, self.heads.head_dim, positions, partial=partial, theta=theta)

    def biased_heads(self) -> Heads:
        """Returns the heads, with biases on q, k, v and the output where attention_bias is true."""
        biased = self.fields.boolean("attention_bias", False)
        return replace(self.heads, qkv_bias=biased, output_bias=biased)

    def biased_feed(self) -> Feed:
        """Returns the feed-forward block, with biases where mlp_bias is true."""
        return replace(self.feed, bias=self.fields.boolean("mlp_bias", False))


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
    """Reads the parts of a dense decoder. silent: the defaults of transformers for this family, in addition to SILENT.
    kv_absent: the number of KV heads where the config has none; None means the number of query heads. kind, plus, eps:
    the kind of all norms, the number added to their weights, and the config field of their epsilon. act: the config
    field of the activation, and its default."""
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
    """Returns the window of each layer. layer_types decides it; where that is absent, all layers but every `pattern`-th
    have a window. A pattern of 0 means no layer has one."""
    usual = tuple(window if pattern and (index + 1) % pattern else 0 for index in range(layers))
    return windows_by_layer(fields, layers, window, usual)


def sliding_window(fields: Fields, absent: int) -> int:
    """Reads sliding_window, where 0 and null mean no window. It is `absent` where the config does not have the
    field."""
    said = fields.optional_integer("sliding_window", 0, MAX_POSITIONS)
    return said or (0 if fields.has("sliding_window") else absent)


def upper_windows(fields: Fields, num_layers: int, absent: int) -> tuple[int, ...]:
    """Returns the window of each layer by Qwen's rule: layers from max_window_layers on have one where
    use_sliding_window is true, unless layer_types overrides this. absent: the window where the config does not have the
    field."""
    window = sliding_window(fields, absent) if fields.boolean("use_sliding_window", False) else 0
    full = fields.integer("max_window_layers", 0, 1 << 20, default=28)
    usual = tuple(window if layer >= full else 0 for layer in range(num_layers))
    return windows_by_layer(fields, num_layers, window, usual)


def same_windows(fields: Fields, family: str, num_layers: int, window: int) -> tuple[int, ...]:
    """Returns the family's one window for each layer. Raises UnsupportedModel where layer_types differs."""
    usual = (window,) * num_layers
    return one_window(fields, family, windows_by_layer(fields, num_layers, window, usual), usual)


def window_of(fields: Fields, absent: int) -> int:
    """Reads sliding_window. It is `absent` where the config does not have the field, 0 where it is null."""
    found = fields.optional_integer("sliding_window", 1, MAX_POSITIONS)
    return found or (0 if fields.has("sliding_window") else absent)
