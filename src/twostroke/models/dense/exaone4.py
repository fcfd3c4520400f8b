"""EXAONE 4: a norm after each block and on each head. The large model has rotations only in layers with a window (LG AI
Research 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import post_layer
from twostroke.models.common.fields.read import pattern_windows, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults


@architecture("Exaone4ForCausalLM", model_type="exaone4")
def exaone4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads EXAONE 4. In models without sliding_window, every layer has rotations and sees all earlier positions."""
    parts = read_parts(fields, defaults("exaone4"), kv_absent=32)
    fields, layers = parts.fields, parts.facts.num_layers
    window = window_of(fields, 4096)
    named = fields.texts("layer_types")  # instead of a list, the pattern may be a word, "LLLG"
    pattern = 0 if named or not window else fields.integer("sliding_window_pattern", 1, 4096, default=4)
    windows = pattern_windows(fields, layers, window, pattern)
    spec = parts.rope()
    parts = replace(parts, heads=replace(parts.heads, head_norm=parts.norm))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        turn = spec if windows[index] or not window else None
        return post_layer(t, parts, x, window=windows[index], turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
