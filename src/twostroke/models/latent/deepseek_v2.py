"""DeepSeek-V2 and V2-Lite: latent attention, many small experts and some that every token uses (DeepSeek-AI 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.fields.deepseek import behind_dense, mixed_program, plain_experts
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.latent import read_latent
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

SILENT = {
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@architecture("DeepseekV2ForCausalLM", model_type="deepseek_v2")
def deepseek_v2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Where the config has no q_lora_rank it is 1,536; null means queries without a latent (Lite). Rotary pairs lie
    side by side."""
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    parts = read_latent(fields, {**SILENT, **usual}, interleaved=True)
    parts = replace(parts, feed=replace(parts.feed, bias=parts.fields.boolean("mlp_bias", False)))
    return parts.facts, mixed_program(parts, plain_experts(parts), behind_dense(parts, 0))
