"""Command R, R7B and A, North: both blocks read one layer norm; interleaved rotations (Cohere 2024, 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import parallel_layer
from twostroke.models.common.blocks.norm import HeadWeights, NormKind
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.nested import NOTHING, language_model
from twostroke.models.common.fields.read import Parts, pattern_windows, read_parts, window_of
from twostroke.models.common.fields.typed_ropes import ropes_or_none
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults


@architecture("CohereForCausalLM", model_type="cohere")
def cohere(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Command R and R+, whose layers all have rotations and see all earlier positions. With use_qk_norm (Command
    R+), each head of q and k has a norm of its own."""
    parts = _read(fields)
    if parts.fields.boolean("use_qk_norm", False):
        parts = replace(parts, heads=replace(parts.heads, head_norm=replace(parts.norm, heads=HeadWeights.ROWS)))
    spec = parts.rope(theta=500_000.0)

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return parallel_layer(t, parts, x, turn=spec)

    return parts.facts, decoder_program(parts.decoder, layer)


@architecture("Cohere2ForCausalLM", model_type="cohere2")
def cohere2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Command R7B and A: three of four layers have a window; every fourth sees all earlier positions and has no
    rotation, unless layer_types overrides this."""
    parts = _read(fields)
    fields = parts.fields
    pattern = fields.integer("sliding_window_pattern", 1, 4096, default=4)
    windows = pattern_windows(fields, parts.facts.num_layers, window_of(fields, 4096), pattern)
    spec = parts.rope()

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return parallel_layer(t, parts, x, window=windows[index], turn=spec if windows[index] else None)

    return parts.facts, decoder_program(parts.decoder, layer)


@architecture("CohereCompassForCausalLM", model_type="cohere_compass_text")
def cohere_compass(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads North, whose rotations pair the two halves of a head. rope_parameters has a group for each type of layer;
    layers of a type whose group is null have no rotation. Every layer sees all earlier positions unless layer_types
    overrides this."""
    parts = _read(fields, {"logit_scale": 1.0}, interleaved=False)
    fields, layers = parts.fields, parts.facts.num_layers
    windows = windows_by_layer(fields, layers, window_of(fields, 4096), (0,) * layers)
    ropes = ropes_or_none(fields, windows, parts.heads.head_dim, parts.facts.max_positions)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return parallel_layer(t, parts, x, window=windows[index], turn=ropes[index])

    return parts.facts, decoder_program(parts.decoder, layer)


@architecture("CohereCompassForConditionalGeneration", model_type="cohere_compass")
def cohere_compass_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return language_model(fields, "CohereCompassForCausalLM")


def _read(fields: Fields, changed: Mapping[str, object] = NOTHING, interleaved: bool = True) -> Parts:
    """Reads a model's parts (attention, feed-forward block, decoder) from its config. changed: defaults that replace
    those of Cohere. interleaved: whether rotary pairs are adjacent."""
    parts = read_parts(fields, {**defaults("cohere"), **changed}, kind=NormKind.PLAIN_LAYER, eps="layer_norm_eps")
    return replace(
        parts,
        heads=replace(parts.biased_heads(), interleaved=interleaved),
        decoder=replace(parts.decoder, logit_scale=parts.fields.number("logit_scale", 1e-6, 1e6)),
    )
