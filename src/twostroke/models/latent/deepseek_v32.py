"""DeepSeek-V3.2: V3, where each row attends to the positions that an index chooses (DeepSeek-AI 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.index import attend_chosen
from twostroke.models.common.fields.deepseek import (
    biased_experts,
    indexed_parts,
    indexed_prediction,
    layers_with_experts,
)
from twostroke.models.common.prediction import MtpHead, predicts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add

SILENT = defaults("deepseek_v32")


@architecture("DeepseekV32ForCausalLM", model_type="deepseek_v32")
def deepseek_v32(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeepSeek-V3.2. A row attends to index_topk positions, which index_n_heads heads of size index_head_dim
    choose. mlp_layer_types defines which layers have experts; first_k_dense_replace does where that field is absent."""
    parts, index = indexed_parts(fields, SILENT, heads=64)
    block, sparse = biased_experts(parts), layers_with_experts(parts, 3)

    def layer(t: Tracer, number: int, x: Value) -> Value:
        x = add(x, attend_chosen(t, parts.heads, index, parts.norm(t, "input_layernorm", x)))
        h = parts.norm(t, "post_attention_layernorm", x)
        return block(t, x, h) if sparse[number] else add(x, parts.feed(t, h))

    return parts.facts, decoder_program(parts.decoder, layer)


@predicts("DeepseekV32ForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), stored after the last layer. They have experts, and an index
    of their own."""
    return indexed_prediction(*indexed_parts(fields, SILENT, heads=64))
