"""Beam: attention heads with gates, rotary positions only in layers with a window, and a residual whose terms are
weighed by depth (Reflection 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import CORRECTION, LARGEST, expert_count, listed_blocks, sigmoid_rule
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.common.fields.typed_ropes import ropes_or_none
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.spec.rope import RopeKind, RopeSpec

SILENT = {
    **defaults("beam"),
    "rope_parameters": {"sliding_attention": {"rope_type": "default"}, "full_attention": None},
}
NAMES = AttentionNames(gate="self_attn.gate_proj", gate_bias="self_attn.gate_bias")
PATTERN, CAP = 6, 30.0
GROWTH, TRAINED = 0.1, 2048
"""In layers without rotary positions, the query of position p is multiplied by (1 + (p + 1) / TRAINED) ^ GROWTH."""


@architecture("BeamForCausalLM", model_type="beam")
def beam(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads config.json and returns the model. Unless layer_types and rope_parameters say otherwise, every sixth layer
    and the last one have full attention without rotary positions, and the others have a window."""
    silu_only(fields)
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields, facts, norm, layers = parts.fields, parts.facts, parts.norm, parts.facts.num_layers
    heads = replace(parts.biased_heads(), head_norm=norm, names=NAMES)
    window = window_of(fields, 512)
    usual = tuple(window if (index + 1) % PATTERN and index + 1 < layers else 0 for index in range(layers))
    windows = windows_by_layer(fields, layers, window, usual)
    ropes = ropes_or_none(fields, windows, heads.head_dim, facts.max_positions)
    growing = RopeSpec(RopeKind.DEFAULT, 1e4, heads.head_dim, TRAINED, power=GROWTH, ahead=1, still=True)
    block = _mixture(fields, facts.hidden_size)
    sparse = [each is not None for each in listed_blocks(fields, mixture(block), layers, 3)]

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        seen = attend(t, heads, h, window=windows[index], turn=ropes[index] or growing)
        x = _weighed(x, norm(t, "post_attention_layernorm", seen, in_place=True), 2 * index + 2)
        h = norm(t, "pre_feedforward_layernorm", x)
        made = block(t, h) if sparse[index] else parts.feed(t, h)
        return _weighed(x, norm(t, "post_feedforward_layernorm", made, in_place=True), 2 * index + 3)

    cap = fields.optional_number("final_logit_softcapping", 1e-3, 1e6)
    cap = CAP if cap is None and not fields.has("final_logit_softcapping") else cap or 0.0
    return facts, decoder_program(replace(parts.decoder, soft_cap=cap), layer)


def _weighed(residual: Value, made: Value, place: int) -> Value:
    """Returns sqrt((place - 1) / place) * residual + sqrt(1 / place) * a block's output. place: the number of terms in
    this sum: the embedding and the outputs of all blocks up to this one. Every term has the same weight in the end."""
    return add(scale(residual, ((place - 1) / place) ** 0.5), scale(made, place**-0.5))


def _mixture(fields: Fields, hidden: int) -> Mixture:
    count = expert_count(fields)
    shape = BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST))
    router = LinearRouter("mlp.gate", count, sigmoid_rule(fields, count), choice_bias=CORRECTION)
    return Mixture(shape, router, EachExpert("mlp.experts"))
