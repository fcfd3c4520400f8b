"""Granite with windows: a sink for each head, a window in three of four layers, rotations by layer (IBM 2026).

Knows: its config fields. Must not know: which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import pre_layer
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {
    **{"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    **{"bos_token_id": 100_257, "eos_token_id": 100_257},
}
LARGEST = 1e6


@architecture("GraniteSWAForCausalLM", model_type="granite_swa")
def granite_swa(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """layer_rope_theta: the base of each layer's rotations, 0 for none."""
    parts = read_parts(fields, SILENT, kv_absent=4)
    fields, layers, dim = parts.fields, parts.facts.num_layers, parts.heads.head_dim
    window = window_of(fields, 128)
    windows = windows_by_layer(fields, layers, window, tuple(window if index % 4 else 0 for index in range(layers)))
    turn = rope_from_config(fields, dim, parts.facts.max_positions)
    thetas = (turn.theta,) * layers
    if fields.values.get("layer_rope_theta") is not None:
        thetas = fields.numbers("layer_rope_theta", layers, 0.0, 1e15)
    factor = fields.number("residual_multiplier", 1e-6, LARGEST, default=1.0)
    biased = fields.boolean("attention_bias", False)
    heads = replace(
        parts.heads,
        scale=fields.number("attention_multiplier", 1e-6, LARGEST, default=1.0),
        qkv_bias=biased,
        output_bias=biased,
        names=AttentionNames(sinks="self_attn.sinks"),
    )
    decoder = replace(
        parts.decoder,
        embedding_scale=fields.number("embedding_multiplier", 1e-6, LARGEST, default=1.0),
        logit_scale=1.0 / fields.number("logits_scaling", 1e-6, LARGEST, default=1.0),
    )
    parts = replace(parts, heads=heads, feed=replace(parts.feed, bias=fields.boolean("mlp_bias", False)))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        own = replace(turn, theta=thetas[index]) if thetas[index] else None
        return pre_layer(t, parts, x, window=windows[index], turn=own, factor=factor)

    return parts.facts, decoder_program(decoder, layer)
