"""DeepSeek-V3.2: V3, where each row attends to the positions that an index chooses (DeepSeek-AI 2025).

Knows: its config fields. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.index import Index, attend_chosen
from twostroke.models.common.fields.deepseek import (
    biased_experts,
    indexed_prediction,
    layers_with_experts,
    prediction_layers,
)
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.latent import MOST_DIMENSIONS, LatentParts, read_latent
from twostroke.models.common.prediction import MtpHead, predicts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.models.latent.deepseek_v3 import SILENT as SILENT_OF_V3
from twostroke.ops.rows.add import add
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields

SILENT = {**SILENT_OF_V3, "max_position_embeddings": 163_840, "q_lora_rank": 1536}
MOST_CHOSEN = 1 << 16


@architecture("DeepseekV32ForCausalLM", model_type="deepseek_v32")
def deepseek_v32(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """index_topk positions of a row, by index_n_heads heads of index_head_dim. mlp_layer_types says which layers have
    experts, first_k_dense_replace where it is absent."""
    parts, index = _parts(fields)
    block, sparse = biased_experts(parts), layers_with_experts(parts, 3)

    def layer(t: Tracer, number: int, x: Value) -> Value:
        x = add(x, attend_chosen(t, parts.heads, index, parts.norm(t, "input_layernorm", x)))
        h = parts.norm(t, "post_attention_layernorm", x)
        return block(t, x, h) if sparse[number] else add(x, parts.feed(t, h))

    return parts.facts, decoder_program(parts.decoder, layer)


@predicts("DeepseekV32ForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """The layers behind the last one, with experts and an index of their own."""
    return indexed_prediction(*_parts(fields))


def _parts(fields: Fields) -> tuple[LatentParts, Index]:
    silu_only(fields)
    refuse_setting(fields, "mlp_bias", "No published model of this family has biases in its feed-forward blocks.")
    if any(kind != "indexed_attention" for kind in fields.texts("layer_types")):
        raise fields.wrong("layer_types", "Every layer of this family chooses positions: indexed_attention.")
    parts = read_latent(fields, SILENT, interleaved=True, ignored=prediction_layers(fields))
    fields = parts.fields
    index = Index(
        fields.integer("index_n_heads", 1, 512, default=64),
        fields.integer("index_head_dim", parts.heads.turned, MOST_DIMENSIONS, default=128),
        fields.integer("index_topk", 1, MOST_CHOSEN, default=2048),
    )
    return parts, index
