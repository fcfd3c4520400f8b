"""Phi-3, Phi-4 and Phi-4-mini: Llama with fused tensors, a part of each head that is rotated, longrope (Abdin et al.
2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_in_order
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

SILENT = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "eos_token_id": 32000}
MULTIMODAL_SILENT = {
    **{"max_position_embeddings": 131_072, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
    **{"num_key_value_heads": 8, "bos_token_id": 199_999, "eos_token_id": [199_999, 200_020]},
}
OLD_LONGROPE = ("su", "yarn")
"""The names of longrope in early releases."""


@architecture("Phi3ForCausalLM", model_type="phi3")
def phi3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """longrope has two sets of factors. One set is chosen once, by the longest context of the engine, because a
    position's rotation must not change while a request grows (ops/attention/rope_tables.py)."""
    return _read(fields, SILENT)


@architecture("Phi4MultimodalForCausalLM", model_type="phi4_multimodal")
def phi4_multimodal(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also takes images and sounds, without the adapters that only these
    need."""
    facts, program = _read(fields, MULTIMODAL_SILENT)
    return replace(facts, ignored=(*facts.ignored, "model.embed_tokens_extend.")), program


def _read(fields: Fields, silent: Mapping[str, object]) -> tuple[CommonFacts, ProgramText]:
    scaling = fields.group("rope_scaling")
    if scaling is not None and scaling.text("rope_type", scaling.text("type", "")) in OLD_LONGROPE:
        renamed = {**scaling.values, "rope_type": "longrope"}
        fields = fields.changed({"rope_scaling": renamed})
    parts = read_parts(fields, silent)
    window = window_of(parts.fields, 0)
    turn = parts.rope(partial=1.0)
    parts = replace(
        parts,
        heads=replace(parts.heads, joined=joined_in_order("self_attn.qkv_proj")),
        feed=replace(parts.feed, gate_up="mlp.gate_up_proj"),
    )
    return pre_decoder(parts, turn, windows=(window,) * parts.facts.num_layers)
