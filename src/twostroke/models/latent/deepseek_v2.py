"""DeepSeek-V2 and V2-Lite: latent attention, many small experts and some that every token uses (DeepSeek-AI 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.fields.deepseek import behind_dense, mixed_program, plain_experts
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.latent import read_latent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("DeepseekV2ForCausalLM", model_type="deepseek_v2")
def deepseek_v2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeepSeek-V2. q_lora_rank is 1,536 where the config does not have it; null means queries without a latent
    (Lite). Rotary pairs lie side by side."""
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    parts = read_latent(fields, {**defaults("deepseek_v2"), **usual}, interleaved=True)
    parts = replace(parts, feed=replace(parts.feed, bias=parts.fields.boolean("mlp_bias", False)))
    return parts.facts, mixed_program(parts, plain_experts(parts), behind_dense(parts, 0))
