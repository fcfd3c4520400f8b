"""DeepSeek-V3, R1 and Kimi K2: V2's layers with another router (DeepSeek-AI 2024; Moonshot AI 2025)."""

from __future__ import annotations

from twostroke.models.common.fields.deepseek import (
    behind_dense,
    biased_experts,
    mixed_prediction,
    mixed_program,
    prediction_layers,
)
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.latent import LatentParts, read_latent
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.prediction import MtpHead, predicts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

SILENT = {
    "max_position_embeddings": 4096,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "moe_intermediate_size": 2048,
    "routed_scaling_factor": 2.5,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


@architecture("DeepseekV3ForCausalLM", model_type="deepseek_v3", other_types=("kimi_k2",))
def deepseek_v3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Where the config has no q_lora_rank it is 1,536; null means queries without a latent."""
    parts = _parts(fields)
    return parts.facts, mixed_program(parts, biased_experts(parts), behind_dense(parts, 3))


@predicts("DeepseekV3ForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the prediction layers after the last layer."""
    return mixed_prediction(_parts(fields))


def _parts(fields: Fields) -> LatentParts:
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    return read_latent(fields, {**SILENT, **usual}, ignored=prediction_layers(fields))


@architecture("Kimi_K25ForConditionalGeneration", "KimiK25ForConditionalGeneration", model_type="kimi_k25")
def kimi_k25(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Kimi K2.5 and K2.6: the language model of a checkpoint that also sees images."""
    return language_model(fields, "DeepseekV3ForCausalLM")
