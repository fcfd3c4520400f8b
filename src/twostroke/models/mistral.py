"""Mistral: the dense decoder with one sliding window for every layer (Jiang et al. 2023)."""

from __future__ import annotations

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.read import Parts, read_parts, same_windows, sliding_window
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

WINDOW = 4096
"""The window where config.json does not have the field; null in config.json means no window."""


@architecture("MistralForCausalLM", model_type="mistral")
def mistral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Mistral. Every layer sees the last sliding_window positions."""
    parts = _parts(fields)
    if fields.value("sliding_window") == 0:
        raise fields.wrong("sliding_window", "A window of nothing has no meaning; null means no window.")
    windows = same_windows(fields, "mistral", parts.facts.num_layers, sliding_window(fields, WINDOW))
    return pre_decoder(parts, parts.rope(), windows=windows)


@architecture("MinistralForCausalLM", model_type="ministral")
def ministral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Ministral, which is Mistral whose layer_types may leave the window out of some layers."""
    parts, window = _parts(fields), sliding_window(fields, WINDOW)
    layers = parts.facts.num_layers
    return pre_decoder(parts, parts.rope(), windows=windows_by_layer(fields, layers, window, (window,) * layers))


def _parts(fields: Fields) -> Parts:
    silu_only(fields)
    return read_parts(fields, defaults("mistral"), kv_absent=8)
