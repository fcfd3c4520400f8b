"""XVERSE 7B, 13B and 65B: Llama under another name (XVERSE 2023)."""

from __future__ import annotations

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {"max_position_embeddings": 8192, "bos_token_id": 2, "eos_token_id": 3}


@architecture("XverseForCausalLM", model_type="xverse")
def xverse(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads XVERSE, which has no biases."""
    refuse_setting(fields, "num_experts", "XVERSE-MoE's experts are not implemented.")
    silu_only(fields)
    parts = read_parts(fields, SILENT)
    return pre_decoder(parts, parts.rope())
