"""Youtu-LLM: a dense decoder with DeepSeek-V3's latent attention (Tencent Youtu Lab 2026)."""

from __future__ import annotations

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.latent import latent_layer, read_latent
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.types.spec.fields import Fields

SILENT = {
    "max_position_embeddings": 131_072,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "bos_token_id": 128_000,
    "eos_token_id": 128_001,
    "tie_word_embeddings": True,
}


@architecture("YoutuForCausalLM", model_type="youtu")
def youtu(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Where the config has no q_lora_rank it is 1,536; null means queries without a latent."""
    usual = {} if fields.has("q_lora_rank") else {"q_lora_rank": 1536}
    parts = read_latent(fields, {**SILENT, **usual})

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return latent_layer(t, parts, x)

    return parts.facts, decoder_program(parts.decoder, layer)
