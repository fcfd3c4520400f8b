"""DBRX: q, k and v are clipped, layer norms without biases, 16 experts in three tensors (Databricks 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend, joined_in_order
from twostroke.models.common.blocks.banks import BankShape, RowsOfExperts
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, mixture
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import activation, clip_of, refuse_setting, usual_names
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import UnsupportedModel

OWN_NAMES = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}
EPS = 1e-5
"""The epsilon of all norms. The config has no field for it."""
FIRST_NORM, SECOND_NORM = "norm_attn_norm.norm_1", "norm_attn_norm.norm_2"
BANKS = RowsOfExperts(*(f"ffn.experts.mlp.{name}" for name in ("w1", "v1", "w2")))


@architecture("DbrxForCausalLM", model_type="dbrx")
def dbrx(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DBRX. attn_config has kv_n_heads, clip_qkv and rope_theta. ffn_config has the sizes of the experts and how
    they are chosen."""
    refuse_setting(fields, "tie_word_embeddings", "The head of this family is a matrix of its own.")
    attention, blocks = (_group(fields, name) for name in ("attn_config", "ffn_config"))
    parts = _parts(fields, attention, blocks)
    theta = attention.number("rope_theta", 1.0 + 1e-6, 1e15, default=10_000.0)
    turn = parts.rope(theta=theta)
    if attention.has("rope_theta") and turn.theta != theta:
        raise attention.wrong("rope_theta", f"config.json says {turn.theta:g} outside of this group.")
    block = mixture(_mixture(blocks, parts))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = add(x, attend(t, parts.heads, parts.norm(t, FIRST_NORM, x), turn=turn))
        return block(t, x, parts.norm(t, SECOND_NORM, x))

    return parts.facts, decoder_program(parts.decoder, layer)


def _group(fields: Fields, name: str) -> Fields:
    return fields.group(name) or Fields({}, f"{fields.place}: {name}")


def _parts(fields: Fields, attention: Fields, blocks: Fields) -> Parts:
    fields = usual_names(fields, OWN_NAMES)
    silent = {
        **{"max_position_embeddings": 2048, "layer_norm_epsilon": EPS},
        "num_key_value_heads": attention.integer("kv_n_heads", 1, 4096, default=1),
        "intermediate_size": blocks.integer("ffn_hidden_size", 1, 1 << 20, default=3584),
    }
    parts = read_parts(fields, silent, kind=NormKind.PLAIN_LAYER, eps="layer_norm_epsilon")
    heads = replace(
        parts.heads,
        clip=clip_of(attention),
        names=replace(parts.heads.names, o="norm_attn_norm.attn.out_proj"),
        joined=joined_in_order("norm_attn_norm.attn.Wqkv"),
    )
    decoder = replace(
        parts.decoder, embedding="transformer.wte", layers="transformer.blocks", last_norm="transformer.norm_f"
    )
    return replace(parts, heads=heads, decoder=decoder)


def _mixture(blocks: Fields, parts: Parts) -> Mixture:
    """Reads the experts. moe_normalize_expert_weights: the order of the norm by which the experts' weights are divided;
    null for none. Only order 1 is implemented."""
    count = blocks.integer("moe_num_experts", 1, MOST_EXPERTS, default=4)
    order = blocks.optional_number("moe_normalize_expert_weights", 0.0, 1e6)
    if not blocks.has("moe_normalize_expert_weights"):
        order = 1.0
    if order not in (None, 1.0):
        raise UnsupportedModel(
            f"{blocks.place}: moe_normalize_expert_weights {order:g} is not implemented.",
            why="Weights of experts are divided by their sum (1) or not divided (null).",
            fix="Use a model of this family with one of these.",
        )
    act = activation(blocks.group("ffn_act_fn") or blocks, "name", "silu")
    rule = RouteRule(blocks.integer("moe_top_k", 1, count, default=1), normalised=order is not None)
    return Mixture(
        BankShape(count, parts.facts.hidden_size, parts.feed.inner_size),
        LinearRouter("ffn.router.layer", count, rule),
        BANKS,
        ExpertRule(act),
    )
