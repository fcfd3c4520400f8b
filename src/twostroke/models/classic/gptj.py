"""GPT-J: attention and feed-forward block read the same layer norm; interleaved rotations of some elements of each head
(Wang 2021).

CodeGen is the same with q, k and v in one tensor (Nijkamp et al. 2023).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import parallel_layer
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.program.values import HeadRows, Weight
from twostroke.types.spec.rope import RopeKind, RopeSpec

OWN_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
}
THETA = 10_000.0


SLICES = 4
"""The number of slices of CodeGen's joined tensor of q, k and v. Each slice has the rows of q, v and k of some heads.
"""


@architecture("GPTJForCausalLM", model_type="gptj")
def gptj(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GPT-J. rotary_dim elements of each head are rotated; null means all of them."""
    return _program(*_read(fields))


@architecture("CodeGenForCausalLM", model_type="codegen")
def codegen(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads CodeGen. Its tensor of q, k and v consists of SLICES slices, each with an equal share of the heads, so the
    number of heads must be a multiple of SLICES."""
    parts, turn = _read(fields)
    if parts.heads.num_heads % SLICES:
        raise fields.wrong("n_head", f"It must be a multiple of {SLICES}.")

    def joined(t: Tracer, shape: Heads) -> Weight:
        local, pairs = shape.query // SLICES, turn.rotary_dim // 2
        orders = [
            HeadRows(shape.num_heads // SLICES, shape.head_dim, shape.head_dim, (3 * index + place) * local, turned)
            for place, turned in ((0, pairs), (2, pairs), (1, 0))
            for index in range(SLICES)
        ]
        return t.selected("qkv", "attn.qkv_proj", 3 * shape.query, shape.hidden_size, orders)

    return _program(replace(parts, heads=replace(parts.heads, joined=joined)), turn)


def _read(fields: Fields) -> tuple[Parts, RopeSpec]:
    fields = usual_names(fields, OWN_NAMES)
    hidden = fields.integer("hidden_size", 2, 1 << 17)
    refuse_setting(fields, "tie_word_embeddings", "The head has biases, which an embedding has not.")
    act = ("activation_function", "gelu_new")
    silent = {**defaults("gptj"), "max_position_embeddings": 2048, "intermediate_size": 4 * hidden}
    parts = read_parts(fields, silent, kind=NormKind.LAYER, eps="layer_norm_epsilon", act=act)
    fields, dim = parts.fields, parts.heads.head_dim
    turned = fields.optional_integer("rotary_dim", 2, dim) or (dim if fields.has("rotary_dim") else 64)
    if turned % 2 or turned > dim:
        raise fields.wrong("rotary_dim", f"It must be an even number of the {dim} elements of a head.")
    turn = RopeSpec(RopeKind.DEFAULT, THETA, turned, parts.facts.max_positions)
    names = replace(parts.heads.names, q="attn.q_proj", k="attn.k_proj", v="attn.v_proj", o="attn.out_proj")
    parts = replace(
        parts,
        heads=replace(parts.heads, interleaved=True, names=names),
        feed=replace(parts.feed, bias=True, gate="", up="mlp.fc_in", down="mlp.fc_out"),
        decoder=replace(
            parts.decoder,
            head_bias=True,
            embedding="transformer.wte",
            layers="transformer.h",
            last_norm="transformer.ln_f",
        ),
    )
    return parts, turn


def _program(parts: Parts, turn: RopeSpec) -> tuple[CommonFacts, ProgramText]:
    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return parallel_layer(t, parts, x, turn=turn, norms=("ln_1",))

    return parts.facts, decoder_program(parts.decoder, layer)
