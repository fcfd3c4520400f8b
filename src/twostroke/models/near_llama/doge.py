"""Doge: Llama whose scores have a bias for each key and KV head, which follows from the key's value (Shi et al. 2024).

A page keeps the bias as one more element of the key, and a query has a constant in that place. Positions beyond
keep_window_size would need a choice among keys. So the longest sequence has keep_window_size positions.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.fields import refuse_setting
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import TakeColumns, take_columns
from twostroke.ops.program.values import PagedKV, Rope, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale, scale_columns
from twostroke.types.spec.rope import MAX_POSITIONS, RopeSpec


@architecture("DogeForCausalLM", model_type="doge")
def doge(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Doge, which multiplies the residual by a vector before it adds a block's output."""
    refuse_setting(fields, "is_moe", "In transformers, its routes mix later tokens of a prompt with earlier ones.")
    parts = read_parts(fields, defaults("doge"))
    fields, norm, width = parts.fields, parts.norm, parts.facts.hidden_size
    biased, window = fields.boolean("attention_bias", False), window_of(fields, 0)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=biased, head_norm=norm)
    feed = parts.biased_feed()
    turn = parts.rope()
    longest = min(parts.facts.max_positions, fields.integer("keep_window_size", 1, MAX_POSITIONS))

    def joined(t: Tracer, name: str, x: Value, made: Value) -> Value:
        return add(scale_columns(x, t.vector(f"{name}_residual", width, suffix="")), made)

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = joined(t, "input", x, _attend(t, heads, norm(t, "input_layernorm", x), window, turn))
        return joined(t, "post_attention", x, feed(t, norm(t, "post_attention_layernorm", x)))

    return replace(parts.facts, max_positions=longest), decoder_program(parts.decoder, layer)


def _attend(t: Tracer, shape: Heads, h: Value, window: int, turn: RopeSpec) -> Value:
    """Returns the attention's output for the normed rows h."""
    names, dim, norm = shape.names, shape.head_dim, shape.head_norm
    outputs = {names.q: shape.query, names.k: shape.kv, names.v: shape.kv}
    made = linear(h, t.matrix("qkv", outputs, shape.hidden_size, bias=shape.qkv_bias))
    q, k, v = made.split(*outputs.values())
    q, k = q.heads(shape.num_heads), k.heads(shape.num_kv_heads)
    if norm:
        q, k = norm.of_heads(t, names.q_norm, q), norm.of_heads(t, names.k_norm, k)
    q, k = rope(join(q, k), Rope(turn), t.positions).flat().split(shape.query, shape.kv)
    gates = linear(v, t.matrix("mask", {"self_attn.dt_proj": shape.num_kv_heads}, shape.kv, bias=shape.qkv_bias))
    rates = t.vector("self_attn.A", shape.num_kv_heads, suffix="")
    bias = activate(scale_columns(activate(gates, Activation.SOFTPLUS), rates), Activation.EXP)
    none = scale_columns(take_columns(q, t.constant("first", (0.0,) * shape.num_heads)), t.constant("zero", (0.0,)))
    constant = scale(activate(none, Activation.EXP), dim**0.5)  # attention divides the scores by this factor
    cache = t.cache(PagedKV(shape.num_kv_heads, dim + 1, window, v_dim=dim))
    kv_write(cache, _beside(t, k, bias), v.heads(shape.num_kv_heads), t.slots)
    seen = attention(_beside(t, q, constant), cache, dim**-0.5).flat()
    return linear(seen, t.matrix("o", {names.o: shape.hidden_size}, shape.query, bias=shape.output_bias))


def _beside(t: Tracer, x: Value, last: Value) -> Value:
    """Returns x (T, heads * dim) as heads of dim + 1 elements: each head gets one column of `last` (T, heads) as its
    last element."""
    heads, dim = last.width, x.width // last.width
    both = x.fresh(x.width + heads)
    left, right = both.split(x.width, heads)
    for part, source in ((left, x), (right, last)):
        t.record(TakeColumns(part, source, t.constant("columns", tuple(map(float, range(source.width))))))
    order = (column for head in range(heads) for column in (*range(head * dim, head * dim + dim), x.width + head))
    return take_columns(join(left, right), t.constant("order", tuple(map(float, order)))).heads(heads)
