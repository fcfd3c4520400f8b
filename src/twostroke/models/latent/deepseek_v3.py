"""DeepSeek-V3, R1 and Kimi K2: V2's layers with another router (DeepSeek-AI 2024; Moonshot AI 2025).

Knows: its config fields. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.fields import silu_only
from twostroke.models.common.nested import nested_text
from twostroke.models.common.read_deepseek import behind_dense, biased_experts, mixed_program, prediction_layers
from twostroke.models.common.read_latent import read_latent
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.spec.fields import Fields
from twostroke.spec.refused_fields import refuse_fields

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

PREFIXES = (
    ("language_model.model.blocks.", "model.layers."),  # as transformers 5.23 writes them
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
"""Of the language model's tensors, in checkpoints that also see images."""
VISION = (
    "vision_tower.",
    "model.vision_tower.",
    "mm_projector.",
    "model.mm_projector.",
)
"""Beginnings of the names of tensors that only images need."""


@architecture("DeepseekV3ForCausalLM", model_type="deepseek_v3", other_types=("kimi_k2",))
def deepseek_v3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """q_lora_rank, where it is absent, is 1,536; null means queries without a latent. The layers that predict further
    tokens (num_nextn_predict_layers) are not read."""
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    parts = read_latent(fields, {**SILENT, **usual}, ignored=prediction_layers(fields))
    return parts.facts, mixed_program(parts, biased_experts(parts), behind_dense(parts, 3))


@architecture("Kimi_K25ForConditionalGeneration", "KimiK25ForConditionalGeneration", model_type="kimi_k25")
def kimi_k25(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Kimi K2.5 and K2.6: the language model of a checkpoint that also sees images."""
    text = nested_text(fields, "text_config")
    refuse_fields(text, "DeepseekV3ForCausalLM", ("deepseek_v3", "kimi_k2"))
    facts, program = deepseek_v3(text)
    return replace(facts, ignored=(*facts.ignored, *VISION), stored_prefixes=PREFIXES), program
