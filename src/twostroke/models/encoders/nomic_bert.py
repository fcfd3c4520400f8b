"""Nomic-BERT: BERT with rotary positions and a gated feed-forward block, without biases (Nussbaum et al. 2024).

Version 2 has biases, blocks without a gate, and experts in every second layer (Nussbaum and Duderstadt 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.encoder import VECTORS, AfterLayers, BlockText, Inputs, joined_heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import (
    activation,
    head_dim,
    read_facts,
    refuse_setting,
    usual_names,
    with_silent,
)
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule
from twostroke.ops.program.values import Tensor, Weight
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.layer_norm import layer_norm
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import rope_from_config

OWN_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
"""The fields of the published config.json, each with its name in transformers."""

SILENT = {"max_position_embeddings": 2048, "layer_norm_eps": 1e-12, "type_vocab_size": 2, "rope_theta": 1000.0}
NORMS = ("norm1", "norm2")
BANK = "mlp.experts.mlp"
APART = "experts_apart"
"""A field that this project adds for GGUF files, which name experts one by one and have no bias after them."""
UNUSED = ("pooler.", "cls.", "nomic_bert.pooler.")


@dataclass(frozen=True, slots=True)
class NomicBanks:
    """The checkpoint has all experts in two tensors, both of shape (experts * inner, hidden). The rows of the second
    are the columns of `down`. Satisfies `Banks`."""

    def gate_up(self, t: Tracer, shape: BankShape) -> Weight:
        """Returns the bank of the experts' first products. The family has no gate."""
        parts = tuple(Tensor(t.name(f"{BANK}.w1"), _all(shape), rows=rows) for rows in _each(shape))
        return t.weight("gate_up", shape.inner_size, shape.hidden_size, parts, experts=shape.experts)

    def down(self, t: Tracer, shape: BankShape) -> Weight:
        parts = tuple(Tensor(t.name(f"{BANK}.w2"), _all(shape), transposed=True, columns=rows) for rows in _each(shape))
        return t.weight("down", shape.hidden_size, shape.inner_size, parts, experts=shape.experts)


def _all(shape: BankShape) -> tuple[int, int]:
    return shape.experts * shape.inner_size, shape.hidden_size


def _each(shape: BankShape) -> list[tuple[int, int]]:
    inner = shape.inner_size
    return [(expert * inner, (expert + 1) * inner) for expert in range(shape.experts)]


@dataclass(frozen=True, slots=True)
class BiasedExperts:
    """A block of experts whose output gets one bias, the same whatever experts a row uses. biased: whether the
    checkpoint has this bias; without it none is added."""

    block: Mixture
    biased: bool

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the rows h, before it is added to the residual."""
        made = self.block(t, h)
        if not self.biased:
            return made
        width = h.width
        # A norm with zeros as weights returns its bias.
        bias = layer_norm(h, t.constant("zeros", (0.0,) * width), t.vector("mlp.experts", width, suffix=".bias"), 1.0)
        return add(made, bias)


@architecture("NomicBertModel", model_type="nomic_bert", form=VECTORS)
def nomic_bert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Nomic-BERT with the tensor names of the published checkpoints, which transformers writes too."""
    _refuse(fields)
    fields = usual_names(fields, OWN_NAMES)
    theta = SILENT if fields.group("rope_parameters") is None else {**SILENT, "rope_theta": None}
    fields = with_silent(fields, {name: value for name, value in theta.items() if value is not None})
    facts = read_facts(fields, positions=2048, ignored=UNUSED)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    turn = rope_from_config(fields, dim, facts.max_positions)
    types = fields.integer("type_vocab_size", 0, 64)
    inputs = Inputs(facts.vocab_size, width, norm, types=types, norm_name="emb_ln")
    biased = fields.boolean("qkv_proj_bias", False)
    heads = joined_heads(width, num_heads, dim, "attn.Wqkv", "attn.out_proj", biased=biased)
    blocks = _blocks(fields, width, facts.num_layers)

    layers = AfterLayers("encoder.layers.", heads, blocks, norm, NORMS, turn)
    return facts, lambda t: gather_rows(layers(t, inputs(t)), t.logit_rows)


def _blocks(fields: Fields, width: int, layers: int) -> list[BlockText]:
    """Returns the feed-forward block of each layer."""
    inner = fields.integer("intermediate_size", 1, 1 << 20)
    biased = fields.boolean("mlp_fc1_bias", False)
    if fields.boolean("mlp_fc2_bias", False) != biased:
        raise UnsupportedModel("config.json: mlp_fc1_bias and mlp_fc2_bias differ.", why="Both must be the same here.")
    if fields.text("activation_function", "swiglu") == "swiglu":
        act = activation(fields, "hidden_act", "silu")
        feed = Feed(width, inner, act, bias=biased, gate="mlp.fc12", up="mlp.fc11", down="mlp.fc2")
    else:
        feed = Feed(width, inner, Activation.GELU, bias=biased, gate="", up="mlp.fc1", down="mlp.fc2")
    every = fields.integer("moe_every_n_layers", 0, 4096, default=0)
    if not every:
        return [feed] * layers
    if feed.gate:
        raise UnsupportedModel("config.json: activation_function must be gelu where there are experts.")
    count = fields.integer("num_experts", 1, MOST_EXPERTS)
    rule = RouteRule(fields.integer("moe_top_k", 1, count))
    router = LinearRouter("mlp.router.layer", count, rule)
    shape = BankShape(count, width, inner, gated=False)
    apart = fields.boolean(APART, False)
    banks = EachExpert("mlp.experts", gate="") if apart else NomicBanks()
    sparse = BiasedExperts(Mixture(shape, router, banks, ExpertRule(Activation.GELU)), biased=not apart)
    return [sparse if index % every == 1 else feed for index in range(layers)]


def _refuse(fields: Fields) -> None:
    """Raises UnsupportedModel for settings of the published code that no published checkpoint of the family has."""
    refuse_setting(fields, "num_shared_experts", "Experts that every row uses are not implemented in this family.")
    refuse_setting(fields, "expert_choice_router", "In this family rows choose experts, not experts rows.")
    refuse_setting(fields, "moe_normalize_expert_weights", "Weights of the chosen experts are taken as they are.")
    refuse_setting(fields, "parallel_block", "The blocks of this family follow one another.")
    refuse_setting(fields, "prenorm", "The norms of this family stand after the blocks.")
    refuse_setting(fields, "causal", "Positions of this family see later ones.")
    refuse_setting(fields, "rotary_emb_interleaved", "Rotary pairs of this family lie half a head apart.")
    refuse_setting(fields, "rotary_scaling_factor", "Rotations of this family are not scaled.")
    if fields.number("rotary_emb_fraction", 0.0, 1.0, default=1.0) != 1.0:
        raise UnsupportedModel("config.json: rotary_emb_fraction must be 1 for this family.")
    word = fields.text("activation_function", "swiglu")
    if word not in ("swiglu", "gelu"):
        raise UnsupportedModel(
            f"config.json: activation_function {word[:40]!r} is not implemented for this family.",
            why="Implemented: swiglu, gelu.",
            fix="Use a model with one of these.",
        )
