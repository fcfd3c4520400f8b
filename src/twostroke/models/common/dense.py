"""The dense decoder that Llama began: grouped attention with rotary positions, SwiGLU, RMS norms before each.

Its members differ in biases, in norms on heads, in windows, in whether the head is the embedding. Other families take
single blocks from here.

Knows: the ops, the names of Llama's tensors.
Must not know: config fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.models.common.registry import ProgramText
from twostroke.ops.activation import Activation
from twostroke.ops.add import add
from twostroke.ops.attention import attention
from twostroke.ops.embed import embed
from twostroke.ops.gate import gate
from twostroke.ops.gather_rows import gather_rows
from twostroke.ops.head_norm import head_norm
from twostroke.ops.kv_write import kv_write
from twostroke.ops.linear import linear
from twostroke.ops.rms_norm import rms_norm
from twostroke.ops.rope import rope
from twostroke.program.trace import Tracer
from twostroke.program.values import PagedKV, Rope, Value, join
from twostroke.spec.rope import RopeSpec

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

    def text(t: Tracer) -> Value:
        x = embed(t.matrix("embedding", {"model.embed_tokens": shape.vocab_size}, shape.hidden_size), t.token_ids, t)
        for index, (window, block) in enumerate(zip(shape.windows, blocks, strict=True)):
            with t.layer(f"model.layers.{index}."):
                h = rms_norm(x, t.vector("input_layernorm", shape.hidden_size), shape.eps)
                x = self_attention(t, shape, x, h, window)
                h = rms_norm(x, t.vector("post_attention_layernorm", shape.hidden_size), shape.eps)
                x = block(t, x, h) if block else gated(t, shape, x, h)
        return head(t, shape, x)

    return text


def self_attention(t: Tracer, shape: Dense, residual: Value, h: Value, window: int) -> Value:
    """Grouped attention with rotary positions, added to the residual."""
    query, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    outputs = {"self_attn.q_proj": query, "self_attn.k_proj": kv, "self_attn.v_proj": kv}
    joined = linear(h, t.matrix("qkv", outputs, shape.hidden_size, bias=shape.qkv_bias))
    q, k, v = joined.split(query, kv, kv)
    q, k, v = q.heads(shape.num_heads), k.heads(shape.num_kv_heads), v.heads(shape.num_kv_heads)
    if shape.head_norms:
        q = head_norm(q, t.vector("self_attn.q_norm", shape.head_dim), shape.eps)
        k = head_norm(k, t.vector("self_attn.k_norm", shape.head_dim), shape.eps)
    turned = rope(join(q, k), Rope(shape.rope), t.positions).flat()
    q, k = turned.columns(0, query).heads(shape.num_heads), turned.columns(query, kv).heads(shape.num_kv_heads)
    cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim, window))
    kv_write(cache, k, v, t.slots)
    attended = attention(q, cache, shape.head_dim**-0.5)
    out = t.matrix("o", {"self_attn.o_proj": shape.hidden_size}, query, bias=shape.output_bias)
    return add(residual, linear(attended.flat(), out))


def gated(t: Tracer, shape: Dense, residual: Value, h: Value) -> Value:
    """SwiGLU, added to the residual."""
    inner = shape.intermediate_size
    both = t.matrix("gate_up", {"mlp.gate_proj": inner, "mlp.up_proj": inner}, shape.hidden_size, bias=shape.mlp_bias)
    down = t.matrix("down", {"mlp.down_proj": shape.hidden_size}, inner, bias=shape.mlp_bias)
    return add(residual, linear(gate(linear(h, both), Activation.SILU), down))


def head(t: Tracer, shape: Dense, x: Value) -> Value:
    """Logits of the rows that need them."""
    rows = rms_norm(gather_rows(x, t.logit_rows), t.vector("model.norm", shape.hidden_size), shape.eps, in_place=True)
    name, role = ("model.embed_tokens", "embedding") if shape.tied else ("lm_head", "head")
    return linear(rows, t.matrix(role, {name: shape.vocab_size}, shape.hidden_size))
