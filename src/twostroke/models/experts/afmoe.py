"""AFMoE (Trinity): norms around both blocks, gated attention, rotations only in layers with a window (Arcee 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.read import pattern_windows, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.expressions import add


@architecture("AfmoeForCausalLM", model_type="afmoe")
def afmoe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads AFMoE. With mup_enabled, the embedding is multiplied by the square root of its width."""
    parts = read_parts(fields, defaults("afmoe"))
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    silu_only(fields)
    names = replace(parts.heads.names, gate="self_attn.gate_proj")
    heads = replace(parts.biased_heads(), head_norm=norm, names=names)
    turn = parts.rope()
    every = fields.integer("global_attn_every_n_layers", 1, 4096)
    windows = pattern_windows(fields, facts.num_layers, window_of(fields, 1024), every)
    dense, block = fields.integer("num_dense_layers", 0, 4096), _mixture(fields, facts.hidden_size)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        window = windows[index]
        seen = attend(t, heads, norm(t, "input_layernorm", x), window=window, turn=turn if window else None)
        x = add(x, norm(t, "post_attention_layernorm", seen, in_place=True))
        h = norm(t, "pre_mlp_layernorm", x)
        made = block(t, h) if index >= dense else parts.feed(t, h)
        return add(x, norm(t, "post_mlp_layernorm", made, in_place=True))

    factor = facts.hidden_size**0.5 if fields.boolean("mup_enabled", False) else 1.0
    return facts, decoder_program(replace(parts.decoder, embedding_scale=factor), layer)


def _mixture(fields: Fields, hidden: int) -> Mixture:
    count = expert_count(fields)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        normalised=True,
        scores=Scores.SIGMOID,
        added=1e-20,
        factor=fields.number("route_scale", 1e-6, 1e6),
    )
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    shared = fields.integer("num_shared_experts", 1, MOST_EXPERTS)
    return Mixture(
        BankShape(count, hidden, inner),
        LinearRouter("mlp.router.gate", count, rule, choice_bias="mlp.expert_bias"),
        EachExpert("mlp.experts"),
        shared=Shared(named_feed(hidden, shared * inner, "mlp.shared_experts")),
    )
