"""Gemma 2: norms on both sides of each block, soft caps, a window in every other layer (Gemma team 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.families.gemma import read_gemma, sandwich_layer
from twostroke.models.common.fields.read import Parts, pattern_windows, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults

NORMS = ("input_layernorm", "pre_feedforward_layernorm")
"""The names of a layer's norms in VaultGemma, which has norms only before its two blocks."""
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""The soft caps where config.json does not have the fields; null in config.json means no cap."""


@architecture("Gemma2ForCausalLM", model_type="gemma2")
def gemma2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Gemma 2. Layers 0, 2, 4 ... have a window, unless layer_types overrides this."""
    model, windows = _read(fields)
    turn = model.rope()

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return sandwich_layer(t, model.heads, model.feed, model.norm, x, window=windows[index], turn=turn)

    return model.facts, decoder_program(model.decoder, layer)


@architecture("VaultGemmaForCausalLM", model_type="vaultgemma")
def vaultgemma(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads VaultGemma, which is Gemma 2 without the norms after its blocks (VaultGemma team 2025)."""
    model, windows = _read(fields)
    turn = model.rope()
    return pre_decoder(model, turn, windows=windows, norms=NORMS)


def _read(fields: Fields) -> tuple[Parts, tuple[int, ...]]:
    """Reads what Gemma 2 and VaultGemma share, soft caps included, and each layer's attention window."""
    model = read_gemma(fields, defaults("gemma2"), "hidden_activation")
    fields = model.fields
    windows = pattern_windows(fields, model.facts.num_layers, window_of(fields, 4096), 2)
    scalar = fields.number("query_pre_attn_scalar", 1e-6, 1e6)
    heads = replace(model.heads, scale=scalar**-0.5, soft_cap=_cap(fields, "attn_logit_softcapping"))
    decoder = replace(model.decoder, soft_cap=_cap(fields, "final_logit_softcapping"))
    return replace(model, heads=heads, decoder=decoder), windows


def _cap(fields: Fields, name: str) -> float:
    absent = 0.0 if fields.has(name) else CAPS[name]
    return fields.optional_number(name, 1e-3, 1e6) or absent
