"""MiniCPM3: a dense decoder with latent attention, and factors on the embedding, the blocks' outputs, and the logits
(OpenBMB 2024)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.latent import latent_layer, read_latent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults

LARGEST = 1e6


@architecture("MiniCPM3ForCausalLM", model_type="minicpm3")
def minicpm3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MiniCPM3. The blocks' outputs are multiplied by scale_depth / sqrt(layers), logits by dim_model_base /
    hidden_size. For either of the two fields null means a factor of one. A rotary pair has one element in each half of
    the rotated part."""
    usual: dict[str, object] = {} if fields.has("q_lora_rank") else {"q_lora_rank": 768}
    if fields.value("v_head_dim") is None:
        usual["v_head_dim"] = fields.integer("hidden_size", 2, 1 << 17) // fields.integer("num_attention_heads", 1, 512)
    parts = read_latent(fields, {**defaults("minicpm3"), **usual}, interleaved=False)
    fields = parts.fields
    depth = _factor(fields, "scale_depth", 1.4, math.sqrt(parts.facts.num_layers))
    base = _factor(fields, "dim_model_base", 256, parts.facts.hidden_size)
    decoder = replace(
        parts.decoder,
        embedding_scale=fields.number("scale_emb", 1e-6, LARGEST, default=12.0),
        logit_scale=base / parts.facts.hidden_size,
    )
    parts = replace(parts, feed=replace(parts.feed, bias=fields.boolean("mlp_bias", False)))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return latent_layer(t, parts, x, factor=depth / math.sqrt(parts.facts.num_layers))

    return parts.facts, decoder_program(decoder, layer)


def _factor(fields: Fields, name: str, absent: float, null: float) -> float:
    if fields.has(name) and fields.value(name) is None:
        return null
    return fields.number(name, 1e-6, LARGEST, default=absent)
