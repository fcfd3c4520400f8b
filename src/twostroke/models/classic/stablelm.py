"""StableLM: Llama with layer norms and a quarter of each head that is rotated (Stability AI 2023, 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import parallel_layer, pre_layer
from twostroke.models.common.blocks.norm import HeadWeights, Norm, NormKind
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults


@architecture("StableLmForCausalLM", model_type="stablelm")
def stablelm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads StableLM. With use_parallel_residual, attention and feed-forward block read the same norm. With
    qk_layernorm, each head of q and k has a norm of its own (StableLM 2 12B)."""
    parts = read_parts(fields, defaults("stablelm"), kv_absent=32, kind=NormKind.LAYER, eps="layer_norm_eps")
    turn = parts.rope(partial=0.25)
    own = Norm(parts.norm.eps, NormKind.PLAIN_LAYER, heads=HeadWeights.APART)
    heads = replace(
        parts.heads,
        qkv_bias=parts.fields.boolean("use_qkv_bias", False),
        head_norm=own if parts.fields.boolean("qk_layernorm", False) else None,
        names=replace(parts.heads.names, q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm"),
    )
    parts = replace(parts, heads=heads)
    layer_of = parallel_layer if parts.fields.boolean("use_parallel_residual", False) else pre_layer

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return layer_of(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
