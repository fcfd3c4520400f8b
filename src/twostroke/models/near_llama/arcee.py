"""Arcee AFM: Llama with a feed-forward block of squared ReLU without a gate (Arcee AI 2025)."""

from __future__ import annotations

from twostroke.models.common.families.squared_relu import SQUARED_RELU, squared_relu_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("ArceeForCausalLM", model_type="arcee")
def arcee(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Arcee AFM, whose feed-forward block has no gate."""
    parts = read_parts(fields, defaults("arcee"), act=SQUARED_RELU)
    return squared_relu_decoder(parts)
