"""HyperCLOVA X SEED: Granite with a norm after each block; logits_scaling multiplies the logits, and does not divide
them (NAVER 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add, scale

LARGEST = 1e6


@architecture("HyperCLOVAXForCausalLM", model_type="hyperclovax")
def hyperclovax(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads HyperCLOVA X SEED. With use_post_norm, each block's output is normed before it is added to the residual."""
    parts = read_parts(fields, defaults("hyperclovax"))
    fields, norm = parts.fields, parts.norm
    turn = parts.rope()
    factor = fields.number("residual_multiplier", 1e-6, LARGEST, default=1.0)
    biased = fields.boolean("attention_bias", False)
    after = fields.boolean("use_post_norm", True)
    heads = replace(
        parts.heads,
        scale=fields.optional_number("attention_multiplier", 1e-6, LARGEST) or 0.0,
        qkv_bias=biased,
        output_bias=biased,
    )
    feed = parts.biased_feed()
    decoder = replace(
        parts.decoder,
        embedding_scale=fields.number("embedding_multiplier", 1e-6, LARGEST, default=1.0),
        logit_scale=fields.number("logits_scaling", 1e-6, LARGEST, default=1.0),
    )

    def added(t: Tracer, x: Value, name: str, made: Value) -> Value:
        return add(x, scale(norm(t, name, made, in_place=True) if after else made, factor))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        seen = attend(t, heads, norm(t, "input_layernorm", x), turn=turn)
        x = added(t, x, "post_norm1", seen)
        return added(t, x, "post_norm2", feed(t, norm(t, "post_attention_layernorm", x)))

    return parts.facts, decoder_program(decoder, layer)
