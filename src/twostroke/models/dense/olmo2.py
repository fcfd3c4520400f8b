"""OLMo 2 and 3: a norm after each block, and over the whole of q and of k (OLMo team 2024, 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import post_layer
from twostroke.models.common.fields.read import Parts, pattern_windows, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.types.spec.rope import RopeSpec, ropes_by_layer_type

THETA = ("rope_theta", 500_000.0)


@architecture("Olmo2ForCausalLM", model_type="olmo2")
def olmo2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads OLMo 2, in which every layer sees all earlier positions."""
    parts = _read(fields)
    turn = parts.rope()
    layers = parts.facts.num_layers
    return _model(parts, (0,) * layers, (turn,) * layers)


@architecture("Olmo3ForCausalLM", model_type="olmo3")
def olmo3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads OLMo 3. Every fourth layer sees all earlier positions, unless layer_types overrides this; only such layers
    have stretched rotations."""
    parts = _read(fields)
    windows = pattern_windows(parts.fields, parts.facts.num_layers, window_of(parts.fields, 4096), 4)
    ropes = ropes_by_layer_type(
        parts.fields,
        parts.heads.head_dim,
        parts.facts.max_positions,
        {"sliding_attention": THETA, "full_attention": THETA},
        "full_attention",
    )
    turns = tuple(ropes["sliding_attention" if window else "full_attention"] for window in windows)
    return _model(parts, windows, turns)


def _read(fields: Fields) -> Parts:
    parts = read_parts(fields, defaults("olmo2"))
    heads = replace(parts.biased_heads(), wide_norm=parts.norm)
    return replace(parts, heads=heads)


def _model(parts: Parts, windows: tuple[int, ...], turns: tuple[RopeSpec, ...]) -> tuple[CommonFacts, ProgramText]:
    def layer(t: Tracer, index: int, x: Value) -> Value:
        return post_layer(t, parts, x, window=windows[index], turn=turns[index])

    return parts.facts, decoder_program(parts.decoder, layer)
