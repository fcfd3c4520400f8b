"""A.X K1: DeepSeek-V3's layers with a norm of the experts' output (SK Telecom 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.deepseek import CHOICE_BIAS, biased_mixture, layers_with_experts, prediction_layers
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.latent import attended, latent_layer, read_latent
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.fields import Fields

SILENT = {
    **{"max_position_embeddings": 32_768, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
    **{"v_head_dim": 128, "n_routed_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8},
    **{"topk_group": 4, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "q_lora_rank": 1536},
    **{"bos_token_id": 163_691, "eos_token_id": 163_691},
}
AFTER = "post_mlp_layernorm"


@architecture("AXK1ForCausalLM", model_type="axk1")
def axk1(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The norm stands after experts alone. Checkpoints hold such a norm for layers without experts too; it is not read.
    """
    silu_only(fields)
    parts = read_latent(fields, SILENT, ignored=prediction_layers(fields))
    block, sparse = biased_mixture(parts), layers_with_experts(parts, 1)
    unused = tuple(f"model.layers.{index}.{AFTER}.weight" for index, each in enumerate(sparse) if not each)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        if not sparse[index]:
            return latent_layer(t, parts, x)
        x = attended(t, parts, x)
        made = block(t, parts.norm(t, "post_attention_layernorm", x))
        return add(x, parts.norm(t, AFTER, made, in_place=True))

    # Published checkpoints have no bias for the choice of experts.
    facts = replace(parts.facts, ignored=(*parts.facts.ignored, *unused), zeros=(CHOICE_BIAS,))
    return facts, decoder_program(parts.decoder, layer)
