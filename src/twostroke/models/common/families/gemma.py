"""Code that Gemma 1, 2 and 3 share: norms stored as w - 1, the scaled embedding, feed-forward blocks gated by gelu."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.fields.defaults import defaults
from twostroke.models.common.fields.fields import refuse_setting, rounded_to
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import RopeSpec


def read_gemma(fields: Fields, silent: Mapping[str, object], activation_field: str) -> Parts:
    """Reads the parts of a Gemma model. silent: further defaults of transformers. The embedding's factor is rounded to
    the dtype of the weights, as in transformers: sqrt(3840) is 62 in bfloat16."""
    refuse_setting(fields, "use_bidirectional_attention", "Each position would see those after it.")
    act = (activation_field, "gelu_pytorch_tanh")
    parts = read_parts(fields, {**defaults("gemma"), **silent}, plus=1.0, act=act)
    factor = rounded_to(parts.facts.dtype, parts.facts.hidden_size**0.5)
    return replace(
        parts,
        heads=parts.biased_heads(),
        decoder=replace(parts.decoder, embedding_scale=factor),
    )


def sandwich_layer(
    t: Tracer, heads: Heads, feed: Feed, norm: Norm, x: Value, *, window: int, turn: RopeSpec | None
) -> Value:
    """Applies a layer with norms before and after both of its blocks, under Gemma's names."""
    seen = attend(t, heads, norm(t, "input_layernorm", x), window=window, turn=turn)
    x = add(x, norm(t, "post_attention_layernorm", seen, in_place=True))
    made = feed(t, norm(t, "pre_feedforward_layernorm", x))
    return add(x, norm(t, "post_feedforward_layernorm", made, in_place=True))
