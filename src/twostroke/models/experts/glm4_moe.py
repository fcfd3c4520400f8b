"""GLM-4.5 and 4.6: half of each head turns; experts by DeepSeek-V3's rule behind the first dense layers (Z.ai 2025).

Knows: its config fields. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.decoder import decoder_program
from twostroke.models.common.layers import sparse_layer
from twostroke.models.common.mixture_fields import blocks_by_layer, sigmoid_mixture
from twostroke.models.common.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {
    **{"max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "moe_intermediate_size": 1408},
    **{"num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
}


@architecture("Glm4MoeForCausalLM", model_type="glm4_moe")
def glm4_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Behind the last layer the file may hold one more, which guesses a second token: it is not read."""
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields, facts = parts.fields, parts.facts
    heads = replace(
        parts.heads,
        qkv_bias=fields.boolean("attention_bias", False),
        head_norm=parts.norm if fields.boolean("use_qk_norm", False) else None,
    )
    parts = replace(parts, heads=heads)
    turn = rope_from_config(fields, heads.head_dim, facts.max_positions, partial=0.5)
    dense = fields.integer("first_k_dense_replace", 0, 4096)
    blocks = blocks_by_layer(sigmoid_mixture(fields, facts.hidden_size), facts.num_layers, dense)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return sparse_layer(t, parts, blocks[index], x, turn=turn)

    guesses = f"model.layers.{facts.num_layers}."
    return replace(facts, ignored=(*facts.ignored, guesses)), decoder_program(parts.decoder, layer)
