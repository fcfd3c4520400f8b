"""Layers of an attention and a feed-forward block. Each function is for another order of the two blocks and their
norms. The default names of tensors are those that most families have."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.fields.read import Parts
from twostroke.models.common.registry import CommonFacts, ProgramText
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.spec.rope import RopeSpec

USUAL_NORMS = ("input_layernorm", "post_attention_layernorm")
ONE_NORM = ("input_layernorm",)


def pre_layer(
    t: Tracer,
    parts: Parts,
    x: Value,
    *,
    window: int = 0,
    turn: RopeSpec | None = None,
    factor: float = 1.0,
    norms: tuple[str, str] = USUAL_NORMS,
) -> Value:
    """Applies a layer with a norm before each block (Llama). factor: multiplies a block's output before it is added to
    the residual."""
    seen = attend(t, parts.heads, parts.norm(t, norms[0], x), window=window, turn=turn)
    x = add(x, scale(seen, factor))
    return add(x, scale(parts.feed(t, parts.norm(t, norms[1], x)), factor))


def sparse_layer(
    t: Tracer,
    parts: Parts,
    block: FeedForwardText | None,
    x: Value,
    *,
    window: int = 0,
    turn: RopeSpec | None = None,
    factor: float = 1.0,
) -> Value:
    """Applies a layer with a norm before each block (see pre_layer), with `block` as its feed-forward block; None takes
    the usual one. factor: multiplies the output of attention, and of the usual feed-forward block. `block` scales its
    own output."""
    if block is None:
        return pre_layer(t, parts, x, window=window, turn=turn, factor=factor)
    seen = attend(t, parts.heads, parts.norm(t, USUAL_NORMS[0], x), window=window, turn=turn)
    x = add(x, scale(seen, factor))
    return block(t, x, parts.norm(t, USUAL_NORMS[1], x))


Turns = RopeSpec | Sequence[RopeSpec | None] | None
"""The rotation (RoPE) of all layers, or a sequence with one for each layer; None for no rotation."""


def pre_decoder(
    parts: Parts,
    turn: Turns = None,
    *,
    windows: Sequence[int] = (),
    factor: float = 1.0,
    norms: tuple[str, str] = USUAL_NORMS,
    blocks: Sequence[FeedForwardText | None] = (),
) -> tuple[CommonFacts, ProgramText]:
    """Returns facts and program of a decoder whose layers have a norm before each block. windows: the attention window
    of each layer; empty for no windows. factor: multiplies the blocks' outputs. norms: the names of both norms. blocks:
    for each layer a feed-forward block, or None for the usual one; empty if all are usual. Raises ValueError where a
    sequence does not have one member for each layer."""
    layers = parts.facts.num_layers
    turns = turn if isinstance(turn, Sequence) else (turn,) * layers
    windows, blocks = windows or (0,) * layers, blocks or (None,) * layers
    if not len(windows) == len(blocks) == len(turns) == layers:
        raise ValueError(f"{layers} layers, {len(windows)} windows, {len(blocks)} blocks, {len(turns)} rotations")

    def layer(t: Tracer, index: int, x: Value) -> Value:
        block, window, own = blocks[index], windows[index], turns[index]
        if block is None:
            return pre_layer(t, parts, x, window=window, turn=own, factor=factor, norms=norms)
        return sparse_layer(t, parts, block, x, window=window, turn=own, factor=factor)

    return parts.facts, decoder_program(parts.decoder, layer)


def post_layer(t: Tracer, parts: Parts, x: Value, *, window: int = 0, turn: RopeSpec | None = None) -> Value:
    """Applies a layer with a norm after each block (OLMo 2)."""
    seen = attend(t, parts.heads, x, window=window, turn=turn)
    x = add(x, parts.norm(t, "post_attention_layernorm", seen, in_place=True))
    return add(x, parts.norm(t, "post_feedforward_layernorm", parts.feed(t, x), in_place=True))


def normed_sums_layer(
    t: Tracer, parts: Parts, x: Value, *, turn: RopeSpec | None = None, norms: tuple[str, str] = USUAL_NORMS
) -> Value:
    """Applies a layer that norms the residual each time after a block was added to it (the first Transformer, OPT
    350M)."""
    x = parts.norm(t, norms[0], add(x, attend(t, parts.heads, x, turn=turn)))
    return parts.norm(t, norms[1], add(x, parts.feed(t, x)))


def parallel_layer(
    t: Tracer,
    parts: Parts,
    x: Value,
    *,
    window: int = 0,
    turn: RopeSpec | None = None,
    norms: tuple[str, ...] = ONE_NORM,
) -> Value:
    """Applies a layer whose blocks both read the residual, through one norm (GPT-J, Cohere) or through one norm each
    (GPT-NeoX). Both outputs are added to the residual."""
    first = parts.norm(t, norms[0], x)
    last = first if len(norms) == 1 else parts.norm(t, norms[1], x)
    return add(add(x, attend(t, parts.heads, first, window=window, turn=turn)), parts.feed(t, last))
