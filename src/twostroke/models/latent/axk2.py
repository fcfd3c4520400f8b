"""A.X K2: DeepSeek-V3.2's layers with gates after norms and after the attention (SK Telecom 2026)."""

from __future__ import annotations

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.index import Index, choose
from twostroke.models.common.blocks.latent import LatentHeads, keep_latents, output, turned_queries
from twostroke.models.common.fields.deepseek import biased_experts, indexed_parts, layers_with_experts
from twostroke.models.common.fields.latent import LatentParts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.chosen_latent_attention import chosen_latent_attention
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import HeadRows, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.rows.multiply import multiply


@architecture("AXK2ForCausalLM", model_type="axk2")
def axk2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads A.X K2. The norms before attention and before experts have a gate of rank gated_norm_rank. Norms before
    dense blocks have no gate."""
    parts, index = indexed_parts(fields, defaults("axk2"), heads=16)
    fields = parts.fields
    block, sparse = biased_experts(parts), layers_with_experts(parts, 1)
    rank = fields.integer("gated_norm_rank", 1, 1 << 16, default=16)

    def layer(t: Tracer, number: int, x: Value) -> Value:
        x = add(x, _attend(t, parts.heads, index, _gated_norm(t, parts, rank, "input_layernorm", x)))
        if not sparse[number]:
            return add(x, parts.feed(t, parts.norm(t, "post_attention_layernorm", x)))
        return block(t, x, _gated_norm(t, parts, rank, "post_attention_layernorm", x))

    return parts.facts, decoder_program(parts.decoder, layer)


def _gated_norm(t: Tracer, parts: LatentParts, rank: int, name: str, x: Value) -> Value:
    """Returns the normed rows, times the sigmoid of the result of two products of these rows."""
    y, width = parts.norm(t, f"{name}.norm", x), parts.facts.hidden_size
    small = activate(linear(y, t.matrix("norm_down", {f"{name}.W_down": rank}, width)), Activation.SILU)
    return multiply(y, linear(small, t.matrix("norm_up", {f"{name}.W_up": width}, rank)), Activation.SIGMOID)


def _attend(t: Tracer, shape: LatentHeads, index: Index, h: Value) -> Value:
    """Returns the block's output for the normed rows h. Queries and gate are made by one product from the normed latent
    joined with the same latent before its norm."""
    heads, rank, name = shape.num_heads, shape.query_rank, shape.name
    cache = keep_latents(t, shape, h)
    made = linear(h, t.matrix("q_latent", {f"{name}.q_a_proj": rank}, shape.hidden_size, bias=shape.bias))
    twice = take_columns(made, t.constant("order", tuple(float(column) for column in range(rank)) * 2))
    latent, plain = twice.split(rank, rank)
    latent = shape.norm(t, f"{name}.q_a_layernorm", latent, in_place=True)
    chosen = choose(t, shape, index, h, latent)
    step = shape.plain + shape.turned + shape.value_dim
    orders = (
        HeadRows(heads, step, shape.plain),
        HeadRows(heads, step, shape.turned, shape.plain, shape.pairs),
        HeadRows(heads, step, shape.value_dim, shape.plain + shape.turned),
    )
    both = linear(join(latent, plain), t.selected("q", f"{name}.q_b_proj", heads * step, 2 * rank, orders))
    *parts, gate = both.split(heads * shape.plain, heads * shape.turned, heads * shape.value_dim)
    seen = chosen_latent_attention(*turned_queries(t, shape, *parts), chosen, cache, shape.scale)
    return output(t, shape, seen, gate)
