"""Nemotron 3 and 4, Minitron: layer norms stored as w - 1, a feed-forward block of squared ReLU without a gate (Parmar
et al. 2024)."""

from __future__ import annotations

from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.families.squared_relu import SQUARED_RELU, squared_relu_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("NemotronForCausalLM", model_type="nemotron")
def nemotron(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Nemotron. Half of each head is rotated, unless partial_rotary_factor overrides this."""
    parts = read_parts(fields, defaults("nemotron"), kind=NormKind.LAYER, plus=1.0, eps="norm_eps", act=SQUARED_RELU)
    return squared_relu_decoder(parts, partial=0.5)
