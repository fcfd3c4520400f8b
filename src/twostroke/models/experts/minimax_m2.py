"""MiniMax-M2: norms over the whole of q and of k, half of each head is rotated, experts chosen by sigmoids plus a bias
(MiniMax 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import rope_from_config

BANKS = EachExpert("block_sparse_moe.experts", gate="w1", up="w3", down_name="w2")
CORRECTION = "block_sparse_moe.e_score_correction_bias"
ONLY: dict[str, object] = {"scoring_func": "sigmoid", "qk_norm_type": "per_layer", "use_qk_norm": True}
"""Fields of the published files, each with the only value that is implemented, in transformers too."""


@architecture("MiniMaxM2ForCausalLM", model_type="minimax_m2")
def minimax_m2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MiniMax-M2. Every layer has attention and experts. rotary_dim, or partial_rotary_factor, decides which part
    of a head is rotated."""
    _check(fields)
    silu_only(fields)
    parts = read_parts(fields, defaults("minimax_m2"), kv_absent=8)
    fields, hidden = parts.fields, parts.facts.hidden_size
    dim = parts.heads.head_dim
    turning = fields.integer("rotary_dim", 2, dim, default=dim)
    turn = rope_from_config(fields, dim, parts.facts.max_positions, partial=turning / dim, theta=5e6)
    parts = replace(parts, heads=replace(parts.heads, wide_norm=parts.norm))
    count = expert_count(fields)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), normalised=True, scores=Scores.SIGMOID)
    router = LinearRouter("block_sparse_moe.gate", count, rule, choice_bias=CORRECTION)
    block = mixture(Mixture(BankShape(count, hidden, parts.feed.inner_size), router, BANKS))
    return pre_decoder(parts, turn, blocks=(block,) * parts.facts.num_layers)


def _check(fields: Fields) -> None:
    refuse_setting(fields, "shared_intermediate_size", "Shared experts are not implemented in this family.")
    for name, only in ONLY.items():
        if fields.value(name, only) not in (only, None):
            raise UnsupportedModel(
                f"config.json: {name} is {str(fields.values[name])[:40]}.",
                why=f"In this family only {only} is implemented.",
                fix="Use a model of this family that has this value.",
            )
    if 0 in fields.integers("attn_type_list"):
        raise fields.wrong("attn_type_list", "Layers of linear attention are not implemented in this family.")
