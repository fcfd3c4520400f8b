"""Youtu-LLM: a dense decoder with DeepSeek-V3's latent attention (Tencent Youtu Lab 2026)."""

from __future__ import annotations

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.latent import latent_layer, read_latent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults


@architecture("YoutuForCausalLM", model_type="youtu")
def youtu(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Youtu-LLM. q_lora_rank is 1,536 where the config does not have it; null means queries without a latent."""
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    parts = read_latent(fields, {**defaults("youtu"), **usual})

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return latent_layer(t, parts, x)

    return parts.facts, decoder_program(parts.decoder, layer)
