"""OLMo Hybrid: three layers with the gated delta rule, whose states may change sign, for one of attention (Ai2
2026)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import post_layer
from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor, VectorForm
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.states.delta_rule import DecayGate, delta_rule
from twostroke.ops.states.gated_norm import gated_norm
from twostroke.ops.states.short_conv import short_conv

LARGEST = 1 << 16
GATE_EPS = 1e-5
"""The eps of the norm after the delta rule. The config has no field for it."""


@dataclass(frozen=True, slots=True)
class OlmoDelta:
    """The sizes of a layer with the gated delta rule. key_dim, value_dim: the sizes of one head. taps: how many
    positions the convolution reads. strength: the largest value of beta, by which a change of the state is multiplied;
    2 where linear_allow_neg_eigval lets states change sign, else 1."""

    hidden_size: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    strength: float


@architecture("OlmoHybridForCausalLM", model_type="olmo_hybrid")
def olmo_hybrid(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads OLMo Hybrid. Every fourth layer has attention; in a model of fewer than four layers, the last one has.
    layer_types overrides this. Heads are rotated only where rope_parameters or rope_theta name a base. Layers with
    attention have their norms after the blocks."""
    parts = read_parts(fields, defaults("olmo_hybrid"))
    fields, layers, heads = parts.fields, parts.facts.num_layers, parts.heads.num_heads
    usual = [index % 4 == 3 for index in range(layers)]
    usual[-1] = usual[-1] or not any(usual)
    attending = attention_layers(fields, layers, tuple(usual))
    group = fields.group("rope_parameters") or fields.group("rope_scaling")
    based = fields.value("rope_theta") is not None or (group and group.value("rope_theta") is not None)
    turn = parts.rope() if based else None
    parts = replace(parts, heads=replace(parts.biased_heads(), wide_norm=parts.norm))
    shape = _delta(fields, parts.facts.hidden_size, heads)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        if attending[index]:
            return post_layer(t, parts, x, turn=turn)
        h = parts.norm(t, "attention_layer_norm", x)
        with t.layer("linear_attn."):
            x = add(x, _net(t, shape, h))
        return add(x, parts.feed(t, parts.norm(t, "feedforward_layer_norm", x)))

    saved = tuple(  # the names that transformers writes
        (f"model.layers.{index}.feedforward_layer_norm.", f"model.layers.{index}.post_attention_layernorm.")
        for index in range(layers)
        if attending[index]
    )
    return replace(parts.facts, stored_prefixes=saved), decoder_program(parts.decoder, layer)


def _delta(fields: Fields, hidden: int, heads: int) -> OlmoDelta:
    keys = fields.optional_integer("linear_num_key_heads", 1, 4096) or heads
    values = fields.optional_integer("linear_num_value_heads", 1, 4096) or heads
    if values % keys:
        raise fields.wrong("linear_num_value_heads", f"It must be a multiple of the {keys} key heads.")
    key_dim = fields.optional_integer("linear_key_head_dim", 1, 4096) or int(0.75 * hidden / keys)
    return OlmoDelta(
        hidden,
        keys,
        values,
        key_dim,
        fields.optional_integer("linear_value_head_dim", 1, 4096) or 2 * key_dim,
        fields.integer("linear_conv_kernel_dim", 2, 64, default=4),
        2.0 if fields.boolean("linear_allow_neg_eigval", True) else 1.0,
    )


def _net(t: Tracer, shape: OlmoDelta, x: Value) -> Value:
    """Returns the block's output for rows x (T, hidden), before it is added to the residual."""
    heads = shape.value_heads
    keys, values = shape.key_heads * shape.key_dim, heads * shape.value_dim
    outputs = {
        **{"q_proj": keys, "k_proj": keys, "v_proj": values, "g_proj": values},
        **{"b_proj": heads, "a_proj": heads},
    }
    *parts, gate, b, a = linear(x, t.matrix("states_in", outputs, shape.hidden_size)).split(*outputs.values())
    q, k, v = (
        short_conv(part, conv_taps(t, f"{name}_conv1d", part.width, shape.taps), None, Activation.SILU).heads(count)
        for name, part, count in zip("qkv", parts, (shape.key_heads, shape.key_heads, heads), strict=True)
    )
    decay = t.vector_of((Tensor(t.name("A_log"), (heads,)),), heads, form=VectorForm.NEGATED_EXP)
    left = DecayGate(a, decay, t.vector("dt_bias", heads, suffix=""))
    scanned = delta_rule(q, k, v, left, b, strength=shape.strength)
    normed = gated_norm(scanned, gate, t.vector("o_norm", shape.value_dim), GATE_EPS, heads, gate_first=False)
    return linear(normed, t.matrix("states_out", {"o_proj": shape.hidden_size}, values))
