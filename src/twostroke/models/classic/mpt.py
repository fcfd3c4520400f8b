"""MPT: ALiBi slopes in place of position embeddings, layer norms without biases (MosaicML 2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.alibi import LARGEST, alibi_slopes
from twostroke.models.common.blocks.attend import joined_in_order
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import clip_of, refuse_setting, usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

OWN_NAMES = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}


@architecture("MptForCausalLM", "MPTForCausalLM", model_type="mpt")
def mpt(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MPT. The fields read from attn_config are softmax_scale and clip_qkv. As in transformers, ALiBi slopes are
    used whatever else attn_config has."""
    attention = fields.group("attn_config") or Fields({}, "config.json: attn_config")
    for name in ("qk_ln", "prefix_lm"):
        refuse_setting(attention, name, "It changes what attention sees, and is not implemented.")
    fields = usual_names(fields, OWN_NAMES)
    silent = {**defaults("mpt"), "intermediate_size": 4 * fields.integer("hidden_size", 2, 1 << 17)}
    act = ("activation_function", "gelu")
    parts = read_parts(fields, silent, kind=NormKind.PLAIN_LAYER, eps="layer_norm_epsilon", act=act)
    if attention.number("alibi_bias_max", 0.0, 1e6, default=LARGEST) != LARGEST:
        raise attention.wrong("alibi_bias_max", f"transformers uses {LARGEST:g} whatever it says.")
    parts = replace(
        parts,
        heads=replace(
            parts.heads,
            scale=attention.optional_number("softmax_scale", 1e-6, 1e6) or 0.0,
            clip=clip_of(attention),
            slopes=alibi_slopes(parts.heads.num_heads),
            names=replace(parts.heads.names, o="attn.out_proj"),
            joined=joined_in_order("attn.Wqkv"),
        ),
        feed=replace(parts.feed, gate="", up="ffn.up_proj", down="ffn.down_proj"),
        decoder=replace(
            parts.decoder,
            embedding="transformer.wte",
            layers="transformer.blocks",
            last_norm="transformer.norm_f",
        ),
    )
    return pre_decoder(parts, norms=("norm_1", "norm_2"))
