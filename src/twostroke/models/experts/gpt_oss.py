"""gpt-oss: sinks, windows in every second layer, experts with biases and a clamped gate (OpenAI 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.activation import Activation

YARN = {
    **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    "original_max_position_embeddings": 4096,
}
NAMES = AttentionNames(sinks="self_attn.sinks")
BANKS = Stacks("mlp.experts.gate_up_proj", "mlp.experts.down_proj", transposed=True, paired=True)
GAIN = 1.702


@architecture("GptOssForCausalLM", model_type="gpt_oss")
def gpt_oss(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads gpt-oss. Every second layer from the first on has a window, unless layer_types overrides this."""
    if not fields.has("rope_scaling") and not fields.has("rope_parameters"):
        fields = fields.changed({"rope_scaling": YARN})
    parts = read_parts(fields, defaults("gpt_oss"), kv_absent=8)
    fields, layers = parts.fields, parts.facts.num_layers
    biased = fields.boolean("attention_bias", True)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=biased, names=NAMES)
    parts = replace(parts, heads=heads)
    turn = parts.rope(theta=150_000.0)
    window = window_of(fields, 128)
    windows = windows_by_layer(fields, layers, window, tuple(0 if index % 2 else window for index in range(layers)))
    block = mixture(_mixture(fields, heads.hidden_size, parts.feed.inner_size))
    return pre_decoder(parts, turn, windows=windows, blocks=(block,) * parts.facts.num_layers)


def _mixture(fields: Fields, hidden: int, inner: int) -> Mixture:
    silu_only(fields)
    if fields.number("swiglu_alpha", 0.0, 1e3, default=GAIN) != GAIN:
        raise fields.wrong("swiglu_alpha", f"Experts of this family have a gain of {GAIN}.")
    count = expert_count(fields, 128)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count, default=4), normalised=True)
    limit = fields.number("swiglu_limit", 1e-3, 1e6, default=7.0)
    return Mixture(
        BankShape(count, hidden, inner, biased=True),
        LinearRouter("mlp.router", count, rule, bias=True),
        BANKS,
        ExpertRule(Activation.QUICK_GELU, limit, shift=1.0),
    )
