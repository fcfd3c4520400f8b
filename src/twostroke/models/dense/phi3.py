"""Phi-3, Phi-4 and Phi-4-mini: Llama with fused tensors, a part of each head that is rotated, longrope (Abdin et al.
2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_in_order
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

OLD_LONGROPE = ("su", "yarn")
"""The names of longrope in early releases."""


@architecture("Phi3ForCausalLM", model_type="phi3")
def phi3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Phi-3, Phi-4 and Phi-4-mini. longrope has two sets of factors. One set is chosen once, by the longest
    context of the engine, because a position's rotation must not change while a request grows
    (ops/attention/rope_tables.py)."""
    return _read(fields, defaults("phi3"))


@architecture("Phi4MultimodalForCausalLM", model_type="phi4_multimodal")
def phi4_multimodal(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also takes images and sounds, without the adapters that only these
    need."""
    facts, program = _read(fields, defaults("phi4_multimodal"))
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
