"""Phi-1, 1.5 and 2: both blocks read one layer norm; every product has a bias, also the head (Li et al. 2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import parallel_layer
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults


@architecture("PhiForCausalLM", model_type="phi")
def phi(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Phi-1, 1.5 and 2. Half of each head is rotated, unless partial_rotary_factor overrides this. With
    qk_layernorm, the heads of q and k are normed."""
    refuse_setting(fields, "tie_word_embeddings", "The head has biases, which an embedding has not.")
    act = ("hidden_act", "gelu_new")
    parts = read_parts(fields, defaults("phi"), kind=NormKind.LAYER, eps="layer_norm_eps", act=act)
    turn = parts.rope(partial=0.5)
    names = replace(
        parts.heads.names, o="self_attn.dense", q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm"
    )
    head_norm = parts.norm if parts.fields.boolean("qk_layernorm", False) else None
    parts = replace(
        parts,
        heads=replace(parts.heads, qkv_bias=True, output_bias=True, names=names, head_norm=head_norm),
        feed=replace(parts.feed, bias=True, gate="", up="mlp.fc1", down="mlp.fc2"),
        decoder=replace(parts.decoder, head_bias=True, last_norm="model.final_layernorm"),
    )

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return parallel_layer(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
