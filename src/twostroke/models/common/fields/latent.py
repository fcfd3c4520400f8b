"""Reading the config of a family with latent attention, under the names of fields that DeepSeek gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.models.common.blocks.decoder import Decoder
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.latent import LatentHeads, attend_latents
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.fields.fields import activation, read_facts, with_silent
from twostroke.models.common.registry import CommonFacts
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.portable import ln
from twostroke.types.spec.rope import RopeKind, RopeSpec, rope_from_config

MOST_DIMENSIONS = 2048
"""The largest latent, and the largest part of a head, that the ops allow."""


@dataclass(frozen=True, slots=True)
class LatentParts:
    """The sizes and settings of a model with latent attention (MLA), read from its config. fields: the config with the
    defaults filled in. heads: latent attention. feed: the feed-forward block of layers without experts. decoder: the
    parts around the layers."""

    fields: Fields
    facts: CommonFacts
    heads: LatentHeads
    feed: Feed
    decoder: Decoder

    @property
    def norm(self) -> Norm:
        """The norm of the residual."""
        return self.decoder.norm


def read_latent(
    fields: Fields, silent: Mapping[str, object], *, interleaved: bool | None = None, ignored: tuple[str, ...] = ()
) -> LatentParts:
    """Reads the parts of a model with latent attention. silent: the defaults of transformers for fields that the config
    does not have. interleaved: whether the family's rotary pairs are adjacent; None where the config decides it.
    ignored: the beginnings of the names of tensors that need not be read."""
    fields = with_silent(fields, silent)
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=2048, ignored=(*ignored, *(("lm_head.weight",) if tied else ())))
    num_heads = fields.integer("num_attention_heads", 1, 512)
    if fields.integer("num_key_value_heads", 1, 4096, default=num_heads) != num_heads:
        raise fields.wrong("num_key_value_heads", f"With latent attention each of the {num_heads} heads has its own.")
    turned = fields.integer("qk_rope_head_dim", 2, MOST_DIMENSIONS)
    turn = rope_from_config(fields, turned, facts.max_positions)
    plain = fields.integer("qk_nope_head_dim", 1, MOST_DIMENSIONS)
    heads = LatentHeads(
        hidden_size=facts.hidden_size,
        num_heads=num_heads,
        query_rank=fields.optional_integer("q_lora_rank", 1, 1 << 16) or 0,
        rank=fields.integer("kv_lora_rank", 1, MOST_DIMENSIONS),
        plain=plain,
        turned=turned,
        value_dim=fields.integer("v_head_dim", 1, MOST_DIMENSIONS),
        scale=(plain + turned) ** -0.5 * _growth(fields, turn) ** 2,
        turn=turn,
        interleaved=fields.boolean("rope_interleave", True) if interleaved is None else interleaved,
        bias=fields.boolean("attention_bias", False),
    )
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1, default=1e-6))
    act = activation(fields, "hidden_act", "silu")
    feed = Feed(facts.hidden_size, fields.integer("intermediate_size", 1, 1 << 20), act)
    return LatentParts(
        fields, facts, heads, feed, Decoder(facts.vocab_size, facts.hidden_size, facts.num_layers, norm, tied)
    )


def latent_layer(t: Tracer, parts: LatentParts, x: Value, *, factor: float = 1.0) -> Value:
    """Applies a layer with a norm before each block. factor: multiplies a block's output before it is added to the
    residual."""
    x = attended(t, parts, x, factor=factor)
    return add(x, scale(parts.feed(t, parts.norm(t, "post_attention_layernorm", x)), factor))


def attended(t: Tracer, parts: LatentParts, x: Value, *, factor: float = 1.0) -> Value:
    """Returns the residual with the attention block's output added."""
    return add(x, scale(attend_latents(t, parts.heads, parts.norm(t, "input_layernorm", x)), factor))


def _growth(fields: Fields, turn: RopeSpec) -> float:
    """Returns the factor by which yarn multiplies queries and keys, in addition to the factor in the table of rotations
    (Peng et al. 2023)."""
    group = fields.group("rope_scaling") or fields.group("rope_parameters")
    if group is None or turn.kind is RopeKind.DEFAULT:
        return 1.0
    factor = group.number("mscale_all_dim", 0.0, 1e3, default=0.0)
    return 0.1 * factor * ln(turn.factor) + 1.0 if factor and turn.factor > 1 else 1.0
