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
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("Glm4MoeLiteForCausalLM", model_type="glm4_moe_lite")
def glm4_moe_lite(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-4.7-Flash. q_lora_rank is 768 where the config does not have it; null means queries without a latent.
    mlp_layer_types defines which layers have experts; first_k_dense_replace does where that field is absent."""
    parts = _parts(fields)
    return parts.facts, mixed_program(parts, biased_experts(parts), layers_with_experts(parts, 1))


@predicts("Glm4MoeLiteForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), which are stored after the model's last layer."""
    return mixed_prediction(_parts(fields))


def _parts(fields: Fields) -> LatentParts:
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 768}
    return read_latent(fields, {**defaults("glm4_moe_lite"), **usual}, ignored=prediction_layers(fields))
