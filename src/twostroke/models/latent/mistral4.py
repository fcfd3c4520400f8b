"""Mistral Small 4: DeepSeek's layers with queries that grow with the logarithm of their position (Mistral AI 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.fields.deepseek import behind_dense, mixed_program, normalised_experts
from twostroke.models.common.fields.fields import silu_only, with_silent
from twostroke.models.common.fields.latent import MOST_DIMENSIONS, read_latent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

SILENT = {
    **defaults("mistral4"),
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 128.0,
        "original_max_position_embeddings": 8192,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale_all_dim": 1.0,
        "mscale": 1.0,
        "llama_4_scaling_beta": 0.1,
    },
}

GROUPS, SHARE = ("rope_parameters", "rope_scaling"), "partial_rotary_factor"


@architecture("Mistral4ForCausalLM", model_type="mistral4")
def mistral4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Mistral Small 4. A query at position p is multiplied by 1 + beta log(1 + floor(p / trained positions))."""
    silu_only(fields)
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1024}
    parts = read_latent(_without_share(with_silent(fields, {**SILENT, **usual})), {})
    group = parts.fields.group("rope_parameters") or parts.fields.group("rope_scaling") or parts.fields
    beta = group.number("llama_4_scaling_beta", 0.0, 1e3)
    parts = replace(parts, heads=replace(parts.heads, query_growth=beta))
    return parts.facts, mixed_program(parts, normalised_experts(parts), behind_dense(parts, 0))


def _without_share(fields: Fields) -> Fields:
    """Returns the fields without partial_rotary_factor, which repeats the share of a head that qk_rope_head_dim gives.
    """
    values = dict(fields.values)
    turned = fields.integer("qk_rope_head_dim", 2, MOST_DIMENSIONS)
    share = turned / (turned + fields.integer("qk_nope_head_dim", 1, MOST_DIMENSIONS))
    for name in GROUPS:
        group = fields.group(name)
        if group is not None:
            if abs(group.number(SHARE, 1e-3, 1.0, default=share) - share) > 1e-6:
                raise group.wrong(SHARE, f"It must be {share:g}, as qk_rope_head_dim says.")
            values[name] = {key: value for key, value in group.values.items() if key != SHARE}
    return fields.only(values)
