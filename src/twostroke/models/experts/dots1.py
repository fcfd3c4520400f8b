"""dots.llm1: Qwen3's attention, experts by DeepSeek-V3's rule after the first dense layers (rednote-hilab 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.mixture import blocks_by_layer, sigmoid_mixture
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

LAYERS = 1 << 20


@architecture("Dots1ForCausalLM", model_type="dots1")
def dots1(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads dots.llm1. Layers from max_window_layers on have a window, unless layer_types overrides this."""
    parts = read_parts(fields, defaults("dots1"))
    fields, facts = parts.fields, parts.facts
    heads = replace(parts.biased_heads(), head_norm=parts.norm)
    parts = replace(parts, heads=heads)
    turn = parts.rope()
    window, full = window_of(fields, 4096), fields.integer("max_window_layers", 0, LAYERS, default=62)
    usual = tuple(window if index >= full else 0 for index in range(facts.num_layers))
    windows = windows_by_layer(fields, facts.num_layers, window, usual)
    dense = fields.integer("first_k_dense_replace", 0, LAYERS, default=0)
    blocks = blocks_by_layer(sigmoid_mixture(fields, facts.hidden_size), facts.num_layers, dense)
    return pre_decoder(parts, turn, windows=windows, blocks=blocks)
