"""BLOOM: ALiBi slopes in place of position embeddings, a norm after the embedding (BigScience 2022)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.alibi import alibi_slopes
from twostroke.models.common.blocks.attend import joined_by_head
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

PREFIX = "transformer."
"""The beginning of the names of all tensors except the head's. Published files leave it out; files that transformers
saves have it."""

OWN_NAMES = {
    "n_embed": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "seq_length": "max_position_embeddings",
}
AFTER_NORM = "apply_residual_connection_post_layernorm"


@architecture("BloomForCausalLM", model_type="bloom")
def bloom(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads BLOOM. seq_length is the longest sequence that the model was trained on; with ALiBi it is no limit."""
    refuse_setting(fields, AFTER_NORM, "What blocks add would be added to the norm's result.")
    fields = usual_names(fields, OWN_NAMES)
    silent = {**defaults("bloom"), "intermediate_size": 4 * fields.integer("hidden_size", 2, 1 << 17)}
    act = ("activation_function", "gelu_new")
    parts = read_parts(fields, silent, kind=NormKind.LAYER, eps="layer_norm_epsilon", act=act)
    norm = parts.norm
    parts = replace(
        parts,
        facts=replace(parts.facts, optional_prefix=PREFIX),
        heads=replace(
            parts.heads,
            qkv_bias=True,
            output_bias=True,
            slopes=alibi_slopes(parts.heads.num_heads),
            names=replace(parts.heads.names, o="self_attention.dense"),
            joined=joined_by_head("self_attention.query_key_value"),
        ),
        feed=replace(parts.feed, bias=True, gate="", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h"),
        decoder=replace(
            parts.decoder,
            embedding=PREFIX + "word_embeddings",
            layers=PREFIX + "h",
            last_norm=PREFIX + "ln_f",
            after_embedding=lambda t, x: norm(t, PREFIX + "word_embeddings_layernorm", x),
        ),
    )
    return pre_decoder(parts)
