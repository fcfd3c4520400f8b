"""OPT: learned positions, layer norms before blocks of relu (Zhang et al. 2022).

Knows: its config fields, the names of its tensors. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.learned_positions import learned_positions
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.spec.fields import Fields
from twostroke.types.errors import UnsupportedModel

SILENT = {"layer_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 2}
OFFSET = 2
"""The first rows of the table of positions belong to none."""

DECODER = "model.decoder."


@architecture("OPTForCausalLM", model_type="opt")
def opt(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """enable_bias for all products of a layer."""
    _refuse(fields)
    fields = usual_names(fields, {"ffn_dim": "intermediate_size"})
    act = ("activation_function", "relu")
    # The norms' eps is no field of this family: it is what layer norms have without one.
    fields = fields.changed({"layer_norm_eps": 1e-5})
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER, eps="layer_norm_eps", act=act)
    biased = parts.fields.boolean("enable_bias", True)
    names = replace(parts.heads.names, o="self_attn.out_proj")
    parts = replace(
        parts,
        facts=replace(parts.facts, stored_prefixes=(("decoder.", DECODER),)),
        heads=replace(parts.heads, qkv_bias=biased, output_bias=biased, names=names),
        feed=replace(parts.feed, bias=biased, gate="", up="fc1", down="fc2"),
        decoder=replace(
            parts.decoder,
            embedding=DECODER + "embed_tokens",
            layers=DECODER + "layers",
            last_norm=DECODER + "final_layer_norm",
            after_embedding=learned_positions(DECODER + "embed_positions", parts.facts, OFFSET),
        ),
    )
    return pre_decoder(parts, norms=("self_attn_layer_norm", "final_layer_norm"))


def _refuse(fields: Fields) -> None:
    hidden = fields.integer("hidden_size", 2, 1 << 17)
    refuse_setting(fields, "_remove_final_layer_norm", "The norm before the head would be left out.")
    for name, usual in (("do_layer_norm_before", True), ("layer_norm_elementwise_affine", True)):
        if fields.boolean(name, usual) is not usual:
            raise UnsupportedModel(
                f"config.json: {name} is false.",
                why="Norms after the blocks (OPT 350M), or norms without weights, are not implemented for this family.",
                fix="Use another size of this family.",
            )
    if (fields.optional_integer("word_embed_proj_dim", 1, 1 << 17) or hidden) != hidden:
        raise fields.wrong("word_embed_proj_dim", "Embeddings of another width than the layers are not implemented.")
