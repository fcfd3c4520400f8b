"""SmolLM3: Llama without rotations in every fourth layer (Hugging Face 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("SmolLM3ForCausalLM", model_type="smollm3")
def smollm3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads SmolLM3. Despite its name, no_rope_layers has 1 for each layer with rotations, and 0 for each layer
    without."""
    parts = read_parts(fields, defaults("smollm3"), kv_absent=4)
    fields, layers = parts.fields, parts.facts.num_layers
    interval = fields.integer("no_rope_layer_interval", 1, 4096, default=4)
    turns = fields.integers("no_rope_layers") or tuple(int((i + 1) % interval != 0) for i in range(layers))
    if len(turns) != layers:
        raise fields.wrong("no_rope_layers", f"It must have one number for each of the {layers} layers.")
    window = window_of(fields, 0) if fields.boolean("use_sliding_window", False) else 0
    usual = tuple(0 if turned else window for turned in turns)
    windows = windows_by_layer(fields, layers, window, usual) if window else usual
    spec = parts.rope(theta=2e6)
    parts = replace(parts, heads=parts.biased_heads(), feed=parts.biased_feed())
    return pre_decoder(parts, [spec if turned else None for turned in turns], windows=windows)
