"""GPT-NeoX and Pythia: both blocks read the residual, each by its own layer norm (Black et al. 2022)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_by_head
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import USUAL_NORMS, parallel_layer, pre_layer
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults

OWN_NAMES = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}


@architecture("GPTNeoXForCausalLM", model_type="gpt_neox")
def gpt_neox(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GPT-NeoX and Pythia. A quarter of each head is rotated, unless rotary_pct overrides this; q, k and v lie
    head by head in one tensor."""
    refuse_setting(fields, "tie_word_embeddings", "No published model of this family has its embedding as the head.")
    fields = usual_names(fields, OWN_NAMES)
    fields = fields.changed({"num_key_value_heads": None})  # this family has no such field
    act = ("hidden_act", "gelu")
    parts = read_parts(fields, defaults("gpt_neox"), kind=NormKind.LAYER, eps="layer_norm_eps", act=act)
    fields = parts.fields
    turn = parts.rope(partial=0.25)
    biased = fields.boolean("attention_bias", True)
    parts = replace(
        parts,
        heads=replace(
            parts.heads,
            qkv_bias=biased,
            output_bias=biased,
            names=replace(parts.heads.names, o="attention.dense"),
            joined=joined_by_head("attention.query_key_value"),
        ),
        feed=replace(parts.feed, bias=True, gate="", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h"),
        decoder=replace(
            parts.decoder,
            embedding="gpt_neox.embed_in",
            layers="gpt_neox.layers",
            last_norm="gpt_neox.final_layer_norm",
            head="embed_out",
        ),
    )
    parallel = fields.boolean("use_parallel_residual", True)

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        if parallel:
            return parallel_layer(t, parts, x, turn=turn, norms=USUAL_NORMS)
        return pre_layer(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
