"""Laguna: attention heads whose output is multiplied by softplus of a gate. The number of query heads is set for each
layer, and the rotary positions for each type of layer (poolside 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.blocks.layers import sparse_layer
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import refuse_setting, silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import LARGEST, expert_count, listed_blocks, named_feed
from twostroke.models.common.fields.read import Parts, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.activation import Activation
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import ropes_by_layer_type

SILENT = {
    **defaults("laguna"),
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
}
THETAS = {"sliding_attention": ("swa_rope_theta", 10_000.0), "full_attention": ("rope_theta", 500_000.0)}
CORRECTION = "mlp.experts.e_score_correction_bias"
NAMES = AttentionNames(gate="self_attn.g_proj")


@architecture("LagunaForCausalLM", model_type="laguna")
def laguna(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads config.json and returns the model. num_attention_heads_per_layer has the number of query heads of each
    layer. gating is per-head (or true), or per-element."""
    silu_only(fields)
    why = "Rows of experts would be multiplied before the product."
    refuse_setting(fields, "moe_apply_router_weight_on_input", why)
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    windows = windows_by_layer(fields, layers, window_of(fields, 512), (0,) * layers)
    ropes = ropes_by_layer_type(
        fields, parts.heads.head_dim, facts.max_positions, THETAS, "full_attention", partial=1.0
    )
    heads = _heads(parts, layers)
    blocks = listed_blocks(fields, _block(fields, facts.hidden_size), layers, 1)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        turn = ropes["sliding_attention" if windows[index] else "full_attention"]
        own = replace(parts, heads=heads[index])
        return sparse_layer(t, own, blocks[index], x, window=windows[index], turn=turn)

    return facts, decoder_program(parts.decoder, layer)


def _heads(parts: Parts, layers: int) -> tuple[Heads, ...]:
    """Returns the settings of each layer's attention heads, which differ in their number."""
    fields, usual = parts.fields, parts.heads
    counts = fields.integers("num_attention_heads_per_layer") or (usual.num_heads,) * layers
    if len(counts) != layers or any(not 1 <= count <= 4096 or count % usual.num_kv_heads for count in counts):
        why = f"It must hold {layers} multiples of the {usual.num_kv_heads} KV heads."
        raise fields.wrong("num_attention_heads_per_layer", why)
    word = fields.value("gating")
    if word not in (True, "per-head", "per-element"):
        raise UnsupportedModel(
            f"{fields.place}: gating {str(word)[:40]!r} is not implemented.",
            why="Implemented: per-head (or true), and per-element.",
            fix="Use a model of this family with one of these.",
        )
    biased = fields.boolean("attention_bias", False)
    shape = replace(
        usual,
        qkv_bias=biased,
        output_bias=biased,
        head_norm=parts.norm,
        names=NAMES,
        gate_function=Activation.SOFTPLUS,
    )
    return tuple(replace(shape, num_heads=count, gates=0 if word == "per-element" else count) for count in counts)


def _block(fields: Fields, hidden: int) -> FeedForwardText:
    count = expert_count(fields, 256)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        normalised=True,
        scores=Scores.SIGMOID,
        factor=fields.number("moe_routed_scaling_factor", 1e-6, 1e6, default=1.0),
    )
    cap = fields.number("moe_router_logit_softcapping", 0.0, 1e6, default=0.0)
    shape = BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST))
    shared = fields.integer("shared_expert_intermediate_size", 1, LARGEST)
    return mixture(
        Mixture(
            shape,
            LinearRouter("mlp.gate", count, rule, choice_bias=CORRECTION, soft_cap=cap),
            EachExpert("mlp.experts"),
            shared=Shared(named_feed(hidden, shared, "mlp.shared_expert")),
        )
    )
