"""Qwen2 and Qwen2.5: the dense decoder with biases on q, k and v; upper layers may slide (Qwen team 2024).

Knows: its config fields, what of the dense decoder is on. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.dense import dense_program
from twostroke.models.common.fields import windows_by_layer
from twostroke.models.common.llama_family import Defaults, read_dense, upper_windows
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.spec.fields import Fields

DEFAULTS = Defaults(max_positions=32_768, kv_heads=32, sliding_window=4096)


@architecture("Qwen2ForCausalLM", model_type="qwen2")
def qwen2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Biases on q, k and v; windows from max_window_layers on."""
    facts, shape = read_dense(fields, DEFAULTS)
    window, usual = upper_windows(fields, DEFAULTS, facts.num_layers)
    windows = windows_by_layer(fields, facts.num_layers, window, usual)
    return facts, dense_program(replace(shape, qkv_bias=True, windows=windows))
