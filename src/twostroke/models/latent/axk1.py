"""A.X K1: DeepSeek-V3's layers with a norm of the experts' output (SK Telecom 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.deepseek import CHOICE_BIAS, biased_mixture, layers_with_experts, prediction_layers
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.latent import attended, latent_layer, read_latent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add

AFTER = "post_mlp_layernorm"


@architecture("AXK1ForCausalLM", model_type="axk1")
def axk1(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads A.X K1. Its norm of a feed-forward block's output is applied in layers with experts only. Checkpoints hold
    such a norm for the other layers too, which is not read."""
    silu_only(fields)
    parts = read_latent(fields, defaults("axk1"), ignored=prediction_layers(fields))
    block, sparse = biased_mixture(parts), layers_with_experts(parts, 1)
    unused = tuple(f"model.layers.{index}.{AFTER}.weight" for index, each in enumerate(sparse) if not each)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        if not sparse[index]:
            return latent_layer(t, parts, x)
        x = attended(t, parts, x)
        made = block(t, parts.norm(t, "post_attention_layernorm", x))
        return add(x, parts.norm(t, AFTER, made, in_place=True))

    # Published checkpoints have no bias for the choice of experts.
    facts = replace(parts.facts, ignored=(*parts.facts.ignored, *unused), zeros=(CHOICE_BIAS,))
    return facts, decoder_program(parts.decoder, layer)
