"""BioGPT: OPT with a scaled embedding and gelu (Luo et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.learned_positions import learned_positions
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {
    **{"max_position_embeddings": 1024, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 2},
    "layer_norm_eps": 1e-5,
}
UNUSED = 2
"""How many rows at the start of the table of positions belong to no position."""


@architecture("BioGptForCausalLM", model_type="biogpt")
def biogpt(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads BioGPT. Every product has a bias. layer_norm_eps is not read: transformers leaves the norms at 1e-5."""
    fields = fields.changed({"layer_norm_eps": 1e-5, "head_dim": None, "num_key_value_heads": None})
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER, eps="layer_norm_eps", act=("hidden_act", "gelu"))
    scaled = parts.fields.boolean("scale_embedding", True)
    ignored = ("output_projection.weight",) if parts.decoder.tied else ()
    parts = replace(
        parts,
        facts=replace(parts.facts, ignored=ignored, stored_prefixes=(("lm_head.", "output_projection."),)),
        heads=replace(
            parts.heads,
            qkv_bias=True,
            output_bias=True,
            names=replace(parts.heads.names, o="self_attn.out_proj"),
        ),
        feed=replace(parts.feed, bias=True, gate="", up="fc1", down="fc2"),
        decoder=replace(
            parts.decoder,
            embedding_scale=math.sqrt(parts.facts.hidden_size) if scaled else 1.0,
            embedding="biogpt.embed_tokens",
            layers="biogpt.layers",
            last_norm="biogpt.layer_norm",
            head="output_projection",
            after_embedding=learned_positions("biogpt.embed_positions", parts.facts, UNUSED),
        ),
    )
    return pre_decoder(parts, norms=("self_attn_layer_norm", "final_layer_norm"))
