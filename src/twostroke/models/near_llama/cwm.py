"""CWM: Llama with a window in three of four layers (Meta 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

ROPE = {
    **{"rope_type": "llama3", "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 8192},
    **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
"""The defaults for fields that config.json does not have."""


@architecture("CwmForCausalLM", model_type="cwm")
def cwm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads CWM. Layers 0, 4, 8 ... see all earlier positions, unless layer_types overrides this."""
    if not fields.group("rope_parameters") and not fields.group("rope_scaling"):
        fields = fields.changed({"rope_parameters": ROPE})
    parts = read_parts(fields, defaults("cwm"), kv_absent=8)
    fields, layers = parts.fields, parts.facts.num_layers
    window = window_of(fields, 8192)
    usual = tuple(window if index % 4 else 0 for index in range(layers))
    windows = windows_by_layer(fields, layers, window, usual)
    turn = parts.rope(theta=1_000_000.0)
    parts = replace(parts, feed=parts.biased_feed())
    return pre_decoder(parts, turn, windows=windows)
