"""Nomic-BERT: BERT with rotary positions and a gated feed-forward block, without biases (Nussbaum et al. 2024).

Knows: its config fields, the names of its tensors. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads, joined_in_order
from twostroke.models.common.blocks.encoder import VECTORS, Inputs, after_layer
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import (
    activation,
    head_dim,
    read_facts,
    refuse_setting,
    usual_names,
    with_silent,
)
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.program.trace import Tracer
from twostroke.program.values import ALL_AHEAD, Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config
from twostroke.types.errors import UnsupportedModel

OWN_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
"""Fields of the published config.json, and what transformers calls them."""

SILENT = {"max_position_embeddings": 2048, "layer_norm_eps": 1e-12, "type_vocab_size": 2, "rope_theta": 1000.0}
NORMS = ("norm1", "norm2")
UNUSED = ("pooler.", "cls.", "nomic_bert.pooler.")


@architecture("NomicBertModel", model_type="nomic_bert", form=VECTORS)
def nomic_bert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The names of tensors are those of the published checkpoints, which transformers writes too."""
    _refuse(fields)
    fields = usual_names(fields, OWN_NAMES)
    swiglu = fields.text("activation_function", "swiglu") == "swiglu"
    theta = SILENT if fields.group("rope_parameters") is None else {**SILENT, "rope_theta": None}
    fields = with_silent(fields, {name: value for name, value in theta.items() if value is not None})
    facts = read_facts(fields, positions=2048, ignored=UNUSED)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    turn = rope_from_config(fields, dim, facts.max_positions)
    act = activation(fields, "hidden_act", "silu") if swiglu else Activation.SILU
    types = fields.integer("type_vocab_size", 0, 64)
    inputs = Inputs(facts.vocab_size, width, norm, types=types, norm_name="emb_ln")
    names = AttentionNames(o="attn.out_proj")
    heads = Heads(width, num_heads, num_heads, dim, names=names, joined=joined_in_order("attn.Wqkv"), ahead=ALL_AHEAD)
    inner = fields.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(width, inner, act, gate="mlp.fc12", up="mlp.fc11", down="mlp.fc2")

    def text(t: Tracer) -> Value:
        x = inputs(t)
        for index in range(facts.num_layers):
            with t.layer(f"encoder.layers.{index}."):
                x = after_layer(t, heads, feed, norm, x, NORMS, turn)
        return gather_rows(x, t.logit_rows)

    return facts, text


def _refuse(fields: Fields) -> None:
    """Settings of the published code that other checkpoints of the family have (v2 has experts)."""
    refuse_setting(fields, "num_experts", "Banks of experts (Nomic v2) are not implemented for this family.")
    refuse_setting(fields, "qkv_proj_bias", "Its products have no biases.")
    refuse_setting(fields, "mlp_fc1_bias", "Its products have no biases.")
    refuse_setting(fields, "mlp_fc2_bias", "Its products have no biases.")
    refuse_setting(fields, "prenorm", "Its norms stand behind the blocks.")
    refuse_setting(fields, "causal", "Its positions see later ones.")
    refuse_setting(fields, "rotary_emb_interleaved", "Its rotary pairs are halves of a head.")
    refuse_setting(fields, "rotary_scaling_factor", "Its rotations are not scaled.")
    if fields.number("rotary_emb_fraction", 0.0, 1.0, default=1.0) != 1.0:
        raise UnsupportedModel("config.json: rotary_emb_fraction must be 1 for this family.")
    word = fields.text("activation_function", "swiglu")
    if word != "swiglu":
        raise UnsupportedModel(
            f"config.json: activation_function {word[:40]!r} is not implemented for this family.",
            why="Implemented: swiglu.",
            fix="Use a model with swiglu.",
        )
