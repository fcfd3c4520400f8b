"""GPT-BigCode: GPT-2 with one KV head, matrices stored as (outputs, inputs); SantaCoder and StarCoder (BigCode
2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, joined_by_head, joined_in_order
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.learned_positions import learned_positions
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

OWN_NAMES = {
    **{"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_inner": "intermediate_size"},
    **{"n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings"},
}
QKV = "attn.c_attn"


@architecture("GPTBigCodeForCausalLM", model_type="gpt_bigcode")
def gpt_bigcode(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GPT-BigCode. With multi_query there is one KV head. Without it each query head has a KV head, and the rows
    of the tensor of q, k and v lie head by head."""
    refuse_setting(fields, "add_cross_attention", "The layers would also see an encoder's output.")
    fields = usual_names(fields, OWN_NAMES)
    heads = fields.integer("num_attention_heads", 1, 4096)
    single = fields.boolean("multi_query", True)
    values = {**fields.values, "num_key_value_heads": 1 if single else heads, "head_dim": None}
    silent = {**defaults("gpt_bigcode"), "intermediate_size": 4 * fields.integer("hidden_size", 2, 1 << 17)}
    parts = read_parts(
        fields.only(values),
        silent,
        kind=NormKind.LAYER,
        eps="layer_norm_epsilon",
        act=("activation_function", "gelu_pytorch_tanh"),
    )
    scaled = parts.fields.boolean("scale_attn_weights", True)
    parts = replace(
        parts,
        facts=replace(parts.facts, optional_prefix="transformer."),
        heads=replace(
            parts.heads,
            scale=0.0 if scaled else 1.0,
            qkv_bias=True,
            output_bias=True,
            names=AttentionNames(o="attn.c_proj"),
            joined=joined_in_order(QKV) if single else joined_by_head(QKV),
        ),
        feed=replace(parts.feed, bias=True, gate="", up="mlp.c_fc", down="mlp.c_proj"),
        decoder=replace(
            parts.decoder,
            embedding="transformer.wte",
            layers="transformer.h",
            last_norm="transformer.ln_f",
            after_embedding=learned_positions("transformer.wpe", parts.facts),
        ),
    )
    return pre_decoder(parts, norms=("ln_1", "ln_2"))
