"""Nemotron 3 and 4, Minitron: layer norms stored as w - 1, a plain block of squared relu (Parmar et al. 2024).

Knows: its config fields, the names of its tensors. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.decoder import decoder_program
from twostroke.models.common.layers import pre_layer
from twostroke.models.common.norm import NormKind
from twostroke.models.common.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {"max_position_embeddings": 4096, "norm_eps": 1e-5, "bos_token_id": 2, "eos_token_id": 3}


@architecture("NemotronForCausalLM", model_type="nemotron")
def nemotron(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Half of each head turns."""
    act = ("hidden_act", "relu2")
    parts = read_parts(fields, SILENT, kind=NormKind.LAYER, plus=1.0, eps="norm_eps", act=act)
    fields = parts.fields
    turn = rope_from_config(fields, parts.heads.head_dim, parts.facts.max_positions, partial=0.5)
    biased = fields.boolean("attention_bias", False)
    parts = replace(
        parts,
        heads=replace(parts.heads, qkv_bias=biased, output_bias=biased),
        feed=replace(parts.feed, bias=fields.boolean("mlp_bias", False), gate=""),
    )

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return pre_layer(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
