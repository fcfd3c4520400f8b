"""The dense decoder that Llama began: grouped attention with rotary positions, SwiGLU, RMS norms before each.

Its members differ in biases, in norms on heads, in windows, in whether the head is the embedding. Other families take
the blocks next to this file: attend.py, feed.py, norm.py, decoder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.decoder import Decoder, decoder_program
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.registry import ProgramText
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.add import add
from twostroke.types.spec.rope import RopeSpec

FeedForwardText = Callable[[Tracer, Value, Value], Value]
"""block(trace, residual, normed): the residual with the feed-forward block added."""


@dataclass(frozen=True, slots=True)
class Dense:
    """The shape of a model. windows: one for each layer, 0 for all positions. tied: the head is the embedding."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    eps: float
    rope: RopeSpec
    windows: tuple[int, ...]
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False


def dense_program(shape: Dense, feed_forward: Sequence[FeedForwardText | None] = ()) -> ProgramText:
    """The program. feed_forward: for each layer, another feed-forward block or None; empty for the usual one."""
    blocks = feed_forward or (None,) * shape.num_layers
    if not len(blocks) == len(shape.windows) == shape.num_layers:
        raise ValueError(f"{shape.num_layers} layers, {len(shape.windows)} windows, {len(blocks)} feed-forward blocks")
    norm = Norm(shape.eps)
    heads = Heads(
        shape.hidden_size,
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
        qkv_bias=shape.qkv_bias,
        output_bias=shape.output_bias,
        head_norm=norm if shape.head_norms else None,
    )
    feed = Feed(shape.hidden_size, shape.intermediate_size, bias=shape.mlp_bias)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        x = add(x, attend(t, heads, h, window=shape.windows[index], turn=shape.rope))
        h = norm(t, "post_attention_layernorm", x)
        block = blocks[index]
        return block(t, x, h) if block else add(x, feed(t, h))

    return decoder_program(Decoder(shape.vocab_size, shape.hidden_size, shape.num_layers, norm, shape.tied), layer)
