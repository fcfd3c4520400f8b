"""Falcon 1 and 2: attention and feed-forward block both read the same residual, in parallel; few KV heads; q, k and v
in one tensor (Almazrouei et al. 2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_by_head, joined_in_order
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import ONE_NORM, parallel_layer, pre_layer
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults

OWN_NAMES = {
    "n_embed": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_head_kv": "num_kv_heads",
    "ffn_hidden_size": "intermediate_size",
}
QKV = "self_attention.query_key_value"


@architecture("FalconForCausalLM", model_type="falcon")
def falcon(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Falcon 1 and 2. With new_decoder_architecture, several KV heads each serve a group of query heads, and a
    layer has one or two norms. Without it, there is one KV head, or one for each query head."""
    refuse_setting(fields, "alibi", "Slopes that are rounded to bfloat16 (Falcon RW) are not implemented.")
    parts = _read(usual_names(fields, OWN_NAMES))
    fields = parts.fields
    turn = parts.rope()
    grouped = fields.boolean("new_decoder_architecture", False)
    norms = fields.optional_integer("num_ln_in_parallel_attn", 1, 2) or (2 if grouped else 1)
    names = ("ln_attn", "ln_mlp") if norms == 2 and grouped else ONE_NORM
    parallel = fields.boolean("parallel_attn", True)
    if grouped and not parallel:
        raise fields.wrong("parallel_attn", "With new_decoder_architecture both blocks read the residual.")

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return parallel_layer(t, parts, x, turn=turn, norms=names) if parallel else pre_layer(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)


def _read(fields: Fields) -> Parts:
    heads = fields.integer("num_attention_heads", 1, 4096)
    grouped = fields.boolean("new_decoder_architecture", False)
    single = not grouped and fields.boolean("multi_query", True)
    kv = fields.integer("num_kv_heads", 1, 4096, default=heads) if grouped else 1 if single else heads
    silent = {**defaults("falcon"), "intermediate_size": 4 * fields.integer("hidden_size", 2, 1 << 17)}
    fields = fields.changed({"num_key_value_heads": kv})
    parts = read_parts(fields, silent, kind=NormKind.LAYER, eps="layer_norm_epsilon", act=("activation", "gelu"))
    biased = parts.fields.boolean("bias", False)
    return replace(
        parts,
        heads=replace(
            parts.heads,
            qkv_bias=biased,
            output_bias=biased,
            names=replace(parts.heads.names, o="self_attention.dense"),
            joined=joined_in_order(QKV) if single else joined_by_head(QKV),
        ),
        feed=replace(parts.feed, bias=biased, gate="", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h"),
        decoder=replace(
            parts.decoder,
            embedding="transformer.word_embeddings",
            layers="transformer.h",
            last_norm="transformer.ln_f",
        ),
    )
