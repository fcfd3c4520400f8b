"""Mistral: the dense decoder with one sliding window for every layer (Jiang et al. 2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.families.dense import dense_program
from twostroke.models.common.families.llama import Defaults, read_dense, sliding_window
from twostroke.models.common.fields.fields import one_window, windows_by_layer
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

DEFAULTS = Defaults(max_positions=131_072, kv_heads=8, sliding_window=4096)


@architecture("MistralForCausalLM", model_type="mistral")
def mistral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """sliding_window for every layer."""
    facts, shape = read_dense(fields, DEFAULTS)
    if fields.value("sliding_window") == 0:
        raise fields.wrong("sliding_window", "A window of nothing has no meaning; null means no window.")
    window = sliding_window(fields, DEFAULTS)
    usual = (window,) * facts.num_layers
    named = windows_by_layer(fields, facts.num_layers, window, usual)
    return facts, dense_program(replace(shape, windows=one_window(fields, "mistral", named, usual)))


@architecture("MinistralForCausalLM", model_type="ministral")
def ministral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Ministral: Mistral whose layer_types may leave the window out of some layers."""
    facts, shape = read_dense(fields, DEFAULTS)
    window = sliding_window(fields, DEFAULTS)
    windows = windows_by_layer(fields, facts.num_layers, window, (window,) * facts.num_layers)
    return facts, dense_program(replace(shape, windows=windows))
