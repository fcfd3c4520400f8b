"""XGLM: OPT with a scaled embedding, GELU, and sinusoidal position embeddings (Lin et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.blocks.sinusoids import sinusoids
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture
from twostroke.types.spec.portable import powers

SILENT = {
    **{"tie_word_embeddings": True, "layer_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 2},
    "pad_token_id": 1,
}
OWN_NAMES = {
    **{"d_model": "hidden_size", "num_layers": "num_hidden_layers", "attention_heads": "num_attention_heads"},
    "ffn_dim": "intermediate_size",
}
AHEAD = 2
"""How many rows at the start of the table of positions belong to no position."""


@architecture("XGLMForCausalLM", model_type="xglm")
def xglm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads XGLM. Every product of a layer has biases. The epsilon of the norms is always 1e-5; configs of this family
    have no field for it."""
    refuse_setting(fields, "add_cross_attention", "The layers would also see an encoder's output, and there is none.")
    fields = usual_names(fields, OWN_NAMES)
    fields = fields.changed({"layer_norm_eps": 1e-5, "head_dim": None, "num_key_value_heads": None})
    act = ("activation_function", "gelu")
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER, eps="layer_norm_eps", act=act)
    fields, facts = parts.fields, parts.facts
    width = facts.hidden_size
    if width % 2 or width < 4:
        raise fields.wrong("hidden_size", "It must be even and at least 4: a position is sines and as many cosines.")
    if fields.integer("pad_token_id", -1, 1 << 24) >= AHEAD:
        raise fields.wrong(
            "pad_token_id", f"transformers makes the row of this position zero: it must be below {AHEAD}."
        )
    half = width // 2
    ignored = (*facts.ignored, "model.embed_positions.weights")  # older files contain the table of positions
    parts = replace(
        parts,
        facts=replace(facts, ignored=ignored),
        heads=replace(
            parts.heads, qkv_bias=True, output_bias=True, names=replace(parts.heads.names, o="self_attn.out_proj")
        ),
        feed=replace(parts.feed, bias=True, gate="", up="fc1", down="fc2"),
        decoder=replace(
            parts.decoder,
            embedding_scale=math.sqrt(width) if fields.boolean("scale_embedding", True) else 1.0,
            last_norm="model.layer_norm",
            after_embedding=sinusoids(facts, powers(10_000.0, [half / (half - 1)])[0], AHEAD),
        ),
    )
    return pre_decoder(parts, norms=("self_attn_layer_norm", "final_layer_norm"))
