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
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("DeepseekV3ForCausalLM", model_type="deepseek_v3", other_types=("kimi_k2",))
def deepseek_v3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeepSeek-V3, R1 and Kimi K2. q_lora_rank is 1,536 where the config does not have it; null means queries
    without a latent."""
    parts = _parts(fields)
    return parts.facts, mixed_program(parts, biased_experts(parts), behind_dense(parts, 3))


@predicts("DeepseekV3ForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), which are stored after the model's last layer."""
    return mixed_prediction(_parts(fields))


def _parts(fields: Fields) -> LatentParts:
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    return read_latent(fields, {**defaults("deepseek_v3"), **usual}, ignored=prediction_layers(fields))


@architecture(
    *("Kimi_K25ForConditionalGeneration", "KimiK25ForConditionalGeneration", "KimiVLForConditionalGeneration"),
    model_type="kimi_k25",
    other_types=("kimi_vl",),
)
def kimi_k25(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Kimi K2.5, K2.6 and Kimi-VL: the language model of a checkpoint that also sees images."""
    return language_model(fields, "DeepseekV3ForCausalLM")
