"""Nemotron 3 and 4, Minitron: layer norms stored as w - 1, a plain block of squared relu (Parmar et al. 2024)."""

from __future__ import annotations

from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.families.squared_relu import SQUARED_RELU, squared_relu_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

SILENT = {"max_position_embeddings": 4096, "norm_eps": 1e-5, "bos_token_id": 2, "eos_token_id": 3}


@architecture("NemotronForCausalLM", model_type="nemotron")
def nemotron(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Nemotron, of which half of each head is rotated."""
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER, plus=1.0, eps="norm_eps", act=SQUARED_RELU)
    return squared_relu_decoder(parts, partial=0.5)
