"""OPT: learned positions, layer norms before blocks of relu, or after them (Zhang et al. 2022)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import Decoder, decoder_program
from twostroke.models.common.blocks.layers import normed_sums_layer, pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import usual_names
from twostroke.models.common.fields.learned_positions import learned_positions
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.linear import linear

SILENT = {"layer_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 2}
OFFSET = 2
"""How many rows at the start of the table of positions belong to no position."""

DECODER = "model.decoder."
NORMS = ("self_attn_layer_norm", "final_layer_norm")


@architecture("OPTForCausalLM", model_type="opt")
def opt(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads OPT. enable_bias: whether the products of layers have biases. do_layer_norm_before: whether norms stand
    before the blocks and before the head, or after the blocks."""
    fields = usual_names(fields, {"ffn_dim": "intermediate_size"})
    act = ("activation_function", "relu")
    # The config of this family has no field for the epsilon of the norms: 1e-5 is the default of layer norms.
    fields = fields.changed({"layer_norm_eps": 1e-5})
    kind = NormKind.LAYER if fields.boolean("layer_norm_elementwise_affine", True) else NormKind.UNIT_LAYER
    parts = read_parts(fields, SILENT, kind=kind, eps="layer_norm_eps", act=act)
    biased = parts.fields.boolean("enable_bias", True)
    before = parts.fields.boolean("do_layer_norm_before", True)
    normed = before and not parts.fields.boolean("_remove_final_layer_norm", False)
    names = replace(parts.heads.names, o="self_attn.out_proj")
    parts = replace(
        parts,
        facts=replace(parts.facts, stored_prefixes=(("decoder.", DECODER),)),
        heads=replace(parts.heads, qkv_bias=biased, output_bias=biased, names=names),
        feed=replace(parts.feed, bias=biased, gate="", up="fc1", down="fc2"),
        decoder=replace(
            _projected(parts),
            embedding=DECODER + "embed_tokens",
            layers=DECODER + "layers",
            last_norm=DECODER + "final_layer_norm" if normed else "",
        ),
    )
    if before:
        return pre_decoder(parts, norms=NORMS)

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return normed_sums_layer(t, parts, x, norms=NORMS)

    return parts.facts, decoder_program(parts.decoder, layer)


def _projected(parts: Parts) -> Decoder:
    """Returns the decoder with its positions. word_embed_proj_dim: the width of embeddings. If it is not the width of
    the layers, a product before the layers and one after them change the width."""
    hidden = parts.facts.hidden_size
    width = parts.fields.optional_integer("word_embed_proj_dim", 1, 1 << 17) or hidden
    positions = learned_positions(DECODER + "embed_positions", parts.facts, OFFSET)
    if width == hidden:
        return replace(parts.decoder, after_embedding=positions)

    def into(t: Tracer, x: Value) -> Value:
        return positions(t, linear(x, t.matrix("embedding_in", {DECODER + "project_in": hidden}, width)))

    def out(t: Tracer, rows: Value) -> Value:
        return linear(rows, t.matrix("embedding_out", {DECODER + "project_out": width}, hidden))

    return replace(parts.decoder, after_embedding=into, embedding_size=width, before_head=out)
