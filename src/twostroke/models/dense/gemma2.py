"""Gemma 2: norms on both sides of each block, soft caps, a window in every other layer (Gemma team 2024).

Knows: its config fields. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.decoder import decoder_program
from twostroke.models.common.gemma_family import read_gemma, sandwich_layer
from twostroke.models.common.read import pattern_windows, window_of
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {"num_key_value_heads": 4, "query_pre_attn_scalar": 256}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""Where config.json is silent; null means none."""


@architecture("Gemma2ForCausalLM", model_type="gemma2")
def gemma2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Layers 0, 2, 4 ... slide, unless layer_types says others."""
    model = read_gemma(fields, SILENT, "hidden_activation")
    fields, layers = model.fields, model.facts.num_layers
    window = window_of(fields, 4096)
    windows = pattern_windows(fields, layers, window, 2)
    turn = rope_from_config(fields, model.heads.head_dim, model.facts.max_positions)
    scalar = fields.number("query_pre_attn_scalar", 1e-6, 1e6)
    heads = replace(model.heads, scale=scalar**-0.5, soft_cap=_cap(fields, "attn_logit_softcapping"))
    decoder = replace(model.decoder, soft_cap=_cap(fields, "final_logit_softcapping"))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return sandwich_layer(t, heads, model.feed, decoder.norm, x, window=windows[index], turn=turn)

    return model.facts, decoder_program(decoder, layer)


def _cap(fields: Fields, name: str) -> float:
    absent = 0.0 if fields.has(name) else CAPS[name]
    return fields.optional_number(name, 1e-3, 1e6) or absent
