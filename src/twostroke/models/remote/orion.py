"""Orion 14B: Llama with layer norms (OrionStar 2024)."""

from __future__ import annotations

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}


@architecture("OrionForCausalLM", model_type="orion")
def orion(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Orion 14B. rms_norm_eps is the epsilon of layer norms with biases, in spite of its name."""
    silu_only(fields)
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER)
    return pre_decoder(parts, parts.rope())
