"""GLM-4.7-Flash: DeepSeek-V3's layers with heads of their own sizes (Z.ai 2026)."""

from __future__ import annotations

from twostroke.models.common.fields.deepseek import (
    biased_experts,
    layers_with_experts,
    mixed_prediction,
    mixed_program,
    prediction_layers,
)
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.latent import LatentParts, read_latent
from twostroke.models.common.prediction import MtpHead, predicts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

SILENT = {
    "max_position_embeddings": 202_752,
    "rms_norm_eps": 1e-5,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1536,
    "routed_scaling_factor": 1.8,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


@architecture("Glm4MoeLiteForCausalLM", model_type="glm4_moe_lite")
def glm4_moe_lite(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Where the config has no q_lora_rank it is 768; null means queries without a latent. mlp_layer_types defines which
    layers have experts; first_k_dense_replace does where that field is absent."""
    parts = _parts(fields)
    return parts.facts, mixed_program(parts, biased_experts(parts), layers_with_experts(parts, 1))


@predicts("Glm4MoeLiteForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the prediction layers after the last layer."""
    return mixed_prediction(_parts(fields))


def _parts(fields: Fields) -> LatentParts:
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 768}
    return read_latent(fields, {**SILENT, **usual}, ignored=prediction_layers(fields))
