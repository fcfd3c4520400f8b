"""Falcon-H1: attention and Mamba-2 side by side in each layer, with constant factors in many places (TII 2025)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.states.mamba2 import mamba2_block, read_mamba2
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, scale
from twostroke.ops.rows.gate import gate
from twostroke.types.spec.rope import rope_from_config

LARGEST = 1e6
"""The largest magnitude that a factor in the config may have."""


@dataclass(frozen=True, slots=True)
class ScaledFeed:
    """The gated feed-forward block with a factor on the gate and one on the result."""

    hidden_size: int
    inner_size: int
    bias: bool
    gate_factor: float
    down_factor: float

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h, before it is added to the residual."""
        inner, hidden = self.inner_size, self.hidden_size
        outputs = {"feed_forward.gate_proj": inner, "feed_forward.up_proj": inner}
        opened, up = linear(h, t.matrix("gate_up", outputs, hidden, bias=self.bias)).split(inner, inner)
        middle = gate(join(scale(opened, self.gate_factor), up), Activation.SILU)
        down = t.matrix("down", {"feed_forward.down_proj": hidden}, inner, bias=self.bias)
        return scale(linear(middle, down), self.down_factor)


@architecture("FalconH1ForCausalLM", model_type="falcon_h1")
def falcon_h1(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Falcon-H1. The factors on the inputs of attention and of states are applied to later values, such as the
    scores. That is exact only where the products of these inputs have no biases, so configs with such biases are
    refused."""
    parts = read_parts(fields, defaults("falcon_h1"))
    fields, facts, norm, dim = parts.fields, parts.facts, parts.norm, parts.heads.head_dim
    silu_only(fields)
    for name in ("attention_bias", "mamba_proj_bias"):
        refuse_setting(fields, name, "A bias that the factor on the block's input leaves alone is not implemented.")
    seen = _factor(fields, "attention_in_multiplier")
    # Queries and keys are each multiplied by the input's factor once, and keys also by key_multiplier. The values'
    # factor is applied to the output.
    heads = replace(parts.heads, scale=dim**-0.5 * seen * seen * _factor(fields, "key_multiplier"))
    attention_out = seen * _factor(fields, "attention_out_multiplier")
    states_in, states_out = _factor(fields, "ssm_in_multiplier"), _factor(fields, "ssm_out_multiplier")
    usual = read_mamba2(fields, facts.hidden_size, norm.eps)
    normed = fields.boolean("mamba_rms_norm", False)
    states = replace(
        usual,
        norm_groups=usual.groups if normed else 0,
        gate_first=not fields.boolean("mamba_norm_before_gate", True),
        out_bias=fields.boolean("projectors_bias", False),
        factors=tuple(states_in * each for each in _factors(fields, "ssm_multipliers", 5)),  # type: ignore[arg-type]
    )
    gate_factor, down_factor = _factors(fields, "mlp_multipliers", 2)
    biased = fields.boolean("mlp_bias", False)
    feed = ScaledFeed(facts.hidden_size, parts.feed.inner_size, biased, gate_factor, down_factor)
    turn = rope_from_config(fields, dim, facts.max_positions)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        with t.layer("mamba."):
            kept = scale(mamba2_block(t, states, h), states_out)
        x = add(x, add(kept, scale(attend(t, heads, h, turn=turn), attention_out)))
        return add(x, feed(t, norm(t, "pre_ff_layernorm", x)))

    decoder = replace(
        parts.decoder,
        last_norm="model.final_layernorm",
        embedding_scale=_factor(fields, "embedding_multiplier"),
        logit_scale=_factor(fields, "lm_head_multiplier"),
    )
    return facts, decoder_program(decoder, layer)


def _factor(fields: Fields, name: str) -> float:
    return fields.number(name, -LARGEST, LARGEST, default=1.0)


def _factors(fields: Fields, name: str, count: int) -> tuple[float, ...]:
    return fields.numbers(name, count, -LARGEST, LARGEST) if fields.value(name) is not None else (1.0,) * count
