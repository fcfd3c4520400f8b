"""MiniCPM 1, 2 and 4: Llama with factors on the embedding, the blocks' outputs, and the logits (OpenBMB 2024, 2025)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}
LARGEST = 1e6


@architecture("MiniCPMForCausalLM", model_type="minicpm")
def minicpm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MiniCPM 1, 2 and 4. The blocks' outputs are multiplied by scale_depth / sqrt(layers), logits by
    dim_model_base / hidden_size."""
    refuse_setting(fields, "sparse_config", "Attention that sees chosen blocks of a long text is not implemented.")
    refuse_setting(fields, "num_experts", "MiniCPM-MoE's experts are not implemented.")
    silu_only(fields)
    parts = read_parts(fields, SILENT)
    fields = parts.fields
    turn = parts.rope()
    depth = fields.number("scale_depth", 1e-6, LARGEST, default=1.0) / math.sqrt(parts.facts.num_layers)
    base = fields.number("dim_model_base", 1e-6, LARGEST, default=1.0)
    decoder = replace(
        parts.decoder,
        embedding_scale=fields.number("scale_emb", 1e-6, LARGEST, default=1.0),
        logit_scale=base / parts.facts.hidden_size,
    )
    heads = parts.biased_heads()
    return pre_decoder(replace(parts, heads=heads, decoder=decoder), turn, factor=depth)
