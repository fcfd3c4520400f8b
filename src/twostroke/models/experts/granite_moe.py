"""Granite MoE: Granite's scaling factors (such as residual_multiplier), experts in stacks, and in some models a shared
block (IBM 2024, 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import mixture
from twostroke.models.common.families.granite_mixture import granite_factor, granite_mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("GraniteMoeForCausalLM", model_type="granitemoe")
def granite_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Granite MoE without a shared block."""
    return _read(fields, shared=0)


@architecture("GraniteMoeSharedForCausalLM", model_type="granitemoeshared")
def granite_moe_shared(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Granite MoE with a shared block, unless the block's size is 0."""
    return _read(fields, shared=fields.integer("shared_intermediate_size", 0, 1 << 20, default=0))


def _read(fields: Fields, shared: int) -> tuple[CommonFacts, ProgramText]:
    silu_only(fields)
    parts = read_parts(fields, defaults("granitemoe"))
    fields, biased = parts.fields, parts.fields.boolean("attention_bias", False)
    scale = granite_factor(fields, "attention_multiplier")
    decoder = replace(
        parts.decoder,
        embedding_scale=granite_factor(fields, "embedding_multiplier"),
        logit_scale=1.0 / granite_factor(fields, "logits_scaling"),
    )
    heads = replace(parts.heads, scale=scale, qkv_bias=biased, output_bias=biased)
    parts = replace(parts, heads=heads, decoder=decoder)
    turn = parts.rope()
    factor = granite_factor(fields, "residual_multiplier")
    block = mixture(granite_mixture(fields, heads.hidden_size, parts.feed.inner_size, shared), factor)
    return pre_decoder(parts, turn, factor=factor, blocks=(block,) * parts.facts.num_layers)
