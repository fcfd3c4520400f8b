"""Jais 2: layer norms, biases everywhere, a plain block of squared relu (Inception 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.families.squared_relu import SQUARED_RELU, squared_relu_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

SILENT = {
    **{"max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 150_024},
    **{"attention_bias": True, "mlp_bias": True},
}


@architecture("Jais2ForCausalLM", model_type="jais2")
def jais2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Jais 2, whose heads are rotated whole."""
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER, eps="layer_norm_eps", act=SQUARED_RELU)
    return squared_relu_decoder(parts)
