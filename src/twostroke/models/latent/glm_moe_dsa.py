"""GLM-5: DeepSeek-V3.2's layers. Some of them attend to the positions that the index of an earlier layer has chosen
(Z.ai 2026)."""

from __future__ import annotations

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.index import attend_found
from twostroke.models.common.fields.deepseek import (
    biased_experts,
    choosing_layers,
    indexed_parts,
    indexed_prediction,
    layers_with_experts,
)
from twostroke.models.common.prediction import MtpHead, predicts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add

SILENT = defaults("glm_moe_dsa")


@architecture("GlmMoeDsaForCausalLM", model_type="glm_moe_dsa")
def glm_moe_dsa(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-5. indexer_types gives for each layer whether it chooses positions (full) or takes those that the last
    full layer chose (shared)."""
    parts, index = indexed_parts(fields, SILENT, heads=32, interleaved=True)
    layers = parts.facts.num_layers
    block, sparse, own = biased_experts(parts), layers_with_experts(parts, 3), choosing_layers(parts.fields, layers)
    found: dict[Tracer, Value] = {}

    def layer(t: Tracer, number: int, x: Value) -> Value:
        h = parts.norm(t, "input_layernorm", x)
        seen, found[t] = attend_found(t, parts.heads, index, h, None if own[number] else found[t])
        x = add(x, seen)
        h = parts.norm(t, "post_attention_layernorm", x)
        return block(t, x, h) if sparse[number] else add(x, parts.feed(t, h))

    return parts.facts, decoder_program(parts.decoder, layer)


@predicts("GlmMoeDsaForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), stored after the last layer. They have experts, and an index
    of their own."""
    return indexed_prediction(*indexed_parts(fields, SILENT, heads=32, interleaved=True))
