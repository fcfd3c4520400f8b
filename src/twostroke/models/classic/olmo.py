"""OLMo 1: Llama with layer norms that have no weights (Groeneveld et al. 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import clip_of
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {"layer_norm_eps": 1e-5, "eos_token_id": 50_279}


@architecture("OlmoForCausalLM", model_type="olmo")
def olmo(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads OLMo 1. clip_qkv: the elements of q, k and v are clipped to -clip_qkv .. clip_qkv (OLMo 7B)."""
    if fields.number("layer_norm_eps", 1e-12, 0.1, default=1e-5) != 1e-5:
        raise fields.wrong("layer_norm_eps", "transformers reads 1e-5 for this family whatever it says.")
    parts = read_parts(fields, SILENT, kind=NormKind.UNIT_LAYER, eps="layer_norm_eps")
    fields = parts.fields
    turn = parts.rope()
    parts = replace(parts, heads=replace(parts.biased_heads(), clip=clip_of(fields)))
    return pre_decoder(parts, turn)
