"""Hunyuan dense: Llama with a norm on each head's q and k after their rotation (Tencent 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.nested import text_model_or_flat
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.types.spec.rope import RopeKind, RopeSpec, rope_from_config


@architecture("HunYuanDenseV1ForCausalLM", model_type="hunyuan_v1_dense")
def hunyuan(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Hunyuan dense, which has a dense block in each layer."""
    parts, turn = read_hunyuan(fields)
    return pre_decoder(parts, turn)


@architecture("HunYuanVLForConditionalGeneration", model_type="hunyuan_vl")
def hunyuan_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads HunyuanOCR: the language model of a checkpoint that also sees images."""
    return text_model_or_flat(fields, Architecture("HunYuanVLText", "hunyuan_vl_text", hunyuan), defaults("hunyuan_vl"))


def read_hunyuan(fields: Fields) -> tuple[Parts, RopeSpec]:
    """Reads the parts of a dense Hunyuan model, and its rotation. In this family, rope scaling of the type dynamic with
    an alpha means a larger base for all lengths."""
    parts = read_parts(fields, defaults("hunyuan_v1_dense"))
    dim = parts.heads.head_dim
    turn = rope_from_config(parts.fields, dim, parts.facts.max_positions)
    group = parts.fields.group("rope_scaling") or parts.fields.group("rope_parameters")
    alpha = group.optional_number("alpha", 0.0, 1e6) if group else None
    if alpha and turn.kind is RopeKind.DYNAMIC:
        turn = replace(turn, kind=RopeKind.DEFAULT, theta=turn.theta * alpha ** (dim / (dim - 2)), factor=1.0)
    names = replace(parts.heads.names, q_norm="self_attn.query_layernorm", k_norm="self_attn.key_layernorm")
    heads = replace(
        parts.biased_heads(), head_norm=parts.norm, norm_after_rope=True, names=names
    )
    return replace(parts, heads=heads), turn
