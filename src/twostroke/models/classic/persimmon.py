"""Persimmon (Adept 2023), whose program is also the language model of Fuyu. The heads of q and k are normed, and the
activation of the feed-forward block is squared ReLU."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_by_head
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.families.squared_relu import SQUARED_RELU
from twostroke.models.common.fields.nested import language_model_or_flat
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

TURNED = 0.5
"""The part of each head that is rotated where the config does not have the field."""


@architecture("PersimmonForCausalLM", model_type="persimmon")
def persimmon(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Persimmon. With qk_layernorm, the heads of q and k are normed before they are rotated."""
    parts = read_parts(fields, defaults("persimmon"), kind=NormKind.LAYER, eps="layer_norm_eps", act=SQUARED_RELU)
    if parts.heads.num_kv_heads != parts.heads.num_heads:
        raise fields.wrong("num_key_value_heads", "Every query head of this family has a KV head of its own.")
    turn = parts.rope(partial=TURNED)
    names = replace(
        parts.heads.names, o="self_attn.dense", q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm"
    )
    heads = replace(
        parts.heads,
        qkv_bias=True,
        output_bias=True,
        head_norm=parts.norm if parts.fields.boolean("qk_layernorm", True) else None,
        names=names,
        joined=joined_by_head("self_attn.query_key_value"),
    )
    feed = replace(parts.feed, bias=True, gate="", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h")
    decoder = replace(parts.decoder, last_norm="model.final_layernorm")
    return pre_decoder(replace(parts, heads=heads, feed=feed, decoder=decoder), turn)


@architecture("FuyuForCausalLM", model_type="fuyu")
def fuyu(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Fuyu's language model. Images are not supported: the product that turns their patches into rows is not
    read."""
    return language_model_or_flat(fields, "PersimmonForCausalLM")
