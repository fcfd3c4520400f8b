"""Granite with windows: a sink for each head, a window in three of four layers, a rotation base for each layer (IBM
2026).

The variant with experts has Granite MoE's block in the same layers.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.banks import Stacks
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.blocks.layers import sparse_layer
from twostroke.models.common.blocks.mixture import mixture
from twostroke.models.common.families.granite_mixture import granite_mixture
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.read import Parts, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.types.spec.rope import rope_from_config

LARGEST = 1e6
BANKS = Stacks("block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj")
ROUTER = "block_sparse_moe.router"


@architecture("GraniteSWAForCausalLM", model_type="granite_swa")
def granite_swa(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Granite with windows. Every layer has a dense block, with biases where mlp_bias is true."""
    parts = read_parts(fields, defaults("granite_swa"), kv_absent=4)
    return _program(replace(parts, feed=parts.biased_feed()))


@architecture("GraniteMoeSWAForCausalLM", model_type="granitemoe_swa")
def granite_moe_swa(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Granite with windows and experts. Every layer has experts, and a shared expert unless its size is 0."""
    silu_only(fields)
    parts = read_parts(fields, defaults("granitemoe_swa"))
    shared = parts.fields.integer("shared_intermediate_size", 0, 1 << 20, default=0)
    block = granite_mixture(parts.fields, parts.facts.hidden_size, parts.feed.inner_size, shared, BANKS, ROUTER)
    return _program(parts, mixture(block, _factor(parts.fields)))


def _program(parts: Parts, block: FeedForwardText | None = None) -> tuple[CommonFacts, ProgramText]:
    """Returns facts and program. layer_rope_theta: the base of each layer's rotations, 0 for none. block: the block
    that replaces the dense one."""
    fields, layers, dim = parts.fields, parts.facts.num_layers, parts.heads.head_dim
    window = window_of(fields, 128)
    windows = windows_by_layer(fields, layers, window, tuple(window if index % 4 else 0 for index in range(layers)))
    turn = rope_from_config(fields, dim, parts.facts.max_positions)
    thetas = (turn.theta,) * layers
    if fields.value("layer_rope_theta") is not None:
        thetas = fields.numbers("layer_rope_theta", layers, 0.0, 1e15)
    factor = _factor(fields)
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
    parts = replace(parts, heads=heads)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        own = replace(turn, theta=thetas[index]) if thetas[index] else None
        return sparse_layer(t, parts, block, x, window=windows[index], turn=own, factor=factor)

    return parts.facts, decoder_program(decoder, layer)


def _factor(fields: Fields) -> float:
    return fields.number("residual_multiplier", 1e-6, LARGEST, default=1.0)
