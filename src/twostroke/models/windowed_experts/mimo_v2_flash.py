"""MiMo-V2-Flash: heads of V narrower than those of K, sinks and twice as many KV heads in layers with a window
(Xiaomi 2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.deepseek import prediction_layers
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.mixture import listed_blocks, sigmoid_mixture
from twostroke.models.common.fields.read import Parts, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import PagedKV, Rope, join
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.spec.rope import RopeSpec, ropes_by_layer_type

THETAS = {"sliding_attention": ("swa_rope_theta", 10_000.0), "full_attention": ("rope_theta", 5_000_000.0)}
SHARE = 0.334
"""The share of a head's dimensions that has rotary positions where the config does not have the field."""
WORDS = {0: "full_attention", 1: "sliding_attention"}
"""The type of a layer for each number of hybrid_layer_pattern, which published configs have in place of layer_types."""
MLP_WORDS = {0: "dense", 1: "sparse"}
"""The word for each number of moe_layer_freq, which published configs have in place of mlp_layer_types."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What the attention layers of one kind, with or without a window, have in common. window: the number of positions
    that a row sees, 0 for all. v_dim: the number of elements of a head of V. v_factor: V is multiplied by it."""

    kv_heads: int
    v_dim: int
    v_factor: float
    window: int
    turn: RopeSpec
    biased: bool


@architecture("MiMoV2FlashForCausalLM", model_type="mimo_v2_flash")
def mimo_v2_flash(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads config.json and returns the model. Unless layer_types and mlp_layer_types say otherwise, layer 0 and every
    sixth layer have full attention, and layer 0 has no experts. Published configs have names of their own for both
    fields, and for the window."""
    parts = read_parts(_usual(fields), defaults("mimo_v2_flash"), kv_absent=4)
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    window = window_of(fields, 129)
    usual = tuple(window if index and (index + 1) % 6 else 0 for index in range(layers))
    windows = windows_by_layer(fields, layers, window, usual)
    ropes = ropes_by_layer_type(
        fields, parts.heads.head_dim, facts.max_positions, THETAS, "full_attention", partial=SHARE
    )
    base = parts.heads.num_kv_heads
    if parts.heads.num_heads % (2 * base):
        raise fields.wrong("num_key_value_heads", "Layers with a window have twice as many, which divide the heads.")
    kind = Kind(
        base,
        fields.integer("v_head_dim", 2, parts.heads.head_dim),
        fields.optional_number("attention_value_scale", 1e-3, 1e3)
        or (1.0 if fields.has("attention_value_scale") else 0.707),
        0,
        ropes["full_attention"],
        fields.boolean("attention_bias", False),
    )
    sliding = replace(kind, kv_heads=2 * base, window=window, turn=ropes["sliding_attention"])
    blocks = listed_blocks(fields, sigmoid_mixture(fields, facts.hidden_size), layers, 1)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        own = sliding if windows[index] else kind
        x = add(x, _attended(t, parts, own, parts.norm(t, "input_layernorm", x)))
        h, block = parts.norm(t, "post_attention_layernorm", x), blocks[index]
        return block(t, x, h) if block else add(x, parts.feed(t, h))

    ignored = (*facts.ignored, "model.mtp.", *prediction_layers(fields))
    return replace(facts, ignored=ignored), decoder_program(parts.decoder, layer)


def _attended(t: Tracer, parts: Parts, kind: Kind, h: Value) -> Value:
    """Records an attention block for the normed rows h, and returns its output, which the caller adds to the
    residual."""
    heads, width, dim = parts.heads.num_heads, parts.heads.hidden_size, parts.heads.head_dim
    query, keys, values = heads * dim, kind.kv_heads * dim, kind.kv_heads * kind.v_dim
    outputs = {"self_attn.q_proj": query, "self_attn.k_proj": keys, "self_attn.v_proj": values}
    q, k, v = linear(h, t.matrix("qkv", outputs, width, bias=kind.biased)).split(query, keys, values)
    turned = rope(join(q.heads(heads), k.heads(kind.kv_heads)), Rope(kind.turn), t.positions).flat()
    q, k = turned.columns(0, query).heads(heads), turned.columns(query, keys).heads(kind.kv_heads)
    cache = t.cache(PagedKV(kind.kv_heads, dim, kind.window, v_dim=kind.v_dim))
    kv_write(cache, k, scale(v, kind.v_factor).heads(kind.kv_heads), t.slots)
    sinks = t.vector("self_attn.attention_sink_bias", heads, suffix="") if kind.window else None
    seen = attention(q, cache, dim**-0.5, sinks=sinks).flat()
    return linear(seen, t.matrix("o", {"self_attn.o_proj": width}, heads * kind.v_dim))


def _usual(fields: Fields) -> Fields:
    """Returns the fields of a published config under the names that transformers gives them."""
    values = dict(fields.values)
    for own, name, words in (
        ("hybrid_layer_pattern", "layer_types", WORDS),
        ("moe_layer_freq", "mlp_layer_types", MLP_WORDS),
    ):
        if values.get(own) is not None and values.get(name) is None:
            numbers = fields.integers(own)
            if any(number not in words for number in numbers):
                raise fields.wrong(own, "It must hold 0 or 1 for each layer.")
            values[name] = [words[number] for number in numbers]
    if values.get("sliding_window_size") is not None:
        values["sliding_window"] = fields.integer("sliding_window_size", 1, 1 << 27) + 1
    if values.get("n_group") is None:
        values["n_group"] = values["topk_group"] = 1
    if values.get("routed_scaling_factor") is None:
        values["routed_scaling_factor"] = 1.0
    return fields.only(values)
