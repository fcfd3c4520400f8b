"""Jais 2: layer norms, biases everywhere, a feed-forward block of squared ReLU without a gate (Inception 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.families.squared_relu import SQUARED_RELU, squared_relu_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("Jais2ForCausalLM", model_type="jais2")
def jais2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Jais 2. The rotation covers all elements of a head."""
    parts = read_parts(fields, defaults("jais2"), kind=NormKind.LAYER, eps="layer_norm_eps", act=SQUARED_RELU)
    return squared_relu_decoder(parts)
