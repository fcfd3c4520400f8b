"""Granite 3: Llama with factors on the embedding, the scores, the blocks' outputs, and the logits (Granite team 2024).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

LARGEST = 1e6


@architecture("GraniteForCausalLM", model_type="granite", other_types=("granite_docling_text", "granite4_vision_text"))
def granite(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Granite 3. Scores are multiplied by attention_multiplier, and not by 1 / sqrt(head_dim). Logits are divided
    by logits_scaling."""
    parts = read_parts(fields, defaults("granite"))
    fields = parts.fields
    turn = parts.rope()
    factor = fields.number("residual_multiplier", 1e-6, LARGEST, default=1.0)
    biased = fields.boolean("attention_bias", False)
    parts = replace(
        parts,
        heads=replace(
            parts.heads,
            scale=fields.number("attention_multiplier", 1e-6, LARGEST, default=1.0),
            qkv_bias=biased,
            output_bias=biased,
        ),
        feed=parts.biased_feed(),
        decoder=replace(
            parts.decoder,
            embedding_scale=fields.number("embedding_multiplier", 1e-6, LARGEST, default=1.0),
            logit_scale=1.0 / fields.number("logits_scaling", 1e-6, LARGEST, default=1.0),
        ),
    )
    return pre_decoder(parts, turn, factor=factor)
