"""LFM3: LFM2's gated convolutions; attention with windows and a gate for each head; norms before and after blocks
(Liquid AI 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.models.states.lfm2 import convolved
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import ropes_by_layer_type

THETAS = {"sliding_attention": ("rope_local_theta", 10_000.0), "full_attention": ("rope_theta", 1_000_000.0)}
CONV = "conv"


@architecture("Lfm3ForCausalLM", model_type="lfm3")
def lfm3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads LFM3. layer_types has conv, sliding_attention or full_attention for each layer. With use_sandwich_norm
    there are norms after blocks as well."""
    parts = read_parts(fields, defaults("lfm3"), kv_absent=4, eps="norm_eps", act=("", "silu"))
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    words, window = _layers(fields, facts.num_layers), window_of(fields, 256)
    if "sliding_attention" in words and not window:
        raise fields.wrong("sliding_window", "layer_types has sliding layers.")
    ropes = ropes_by_layer_type(fields, parts.heads.head_dim, facts.max_positions, THETAS, "full_attention")
    gated, biased = fields.boolean("use_attention_gate", True), fields.boolean("attention_bias", False)
    heads = replace(
        parts.heads,
        qkv_bias=biased,
        output_bias=biased,
        head_norm=norm,
        gates=parts.heads.num_heads,
        names=AttentionNames(gate="self_attn.gate_proj" if gated else ""),
    )
    feed = replace(parts.feed, gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2")
    taps, conv_bias = fields.integer("conv_L_cache", 2, 64, default=7), fields.boolean("conv_bias", False)
    after = fields.boolean("use_sandwich_norm", True)

    def normed(t: Tracer, name: str, made: Value) -> Value:
        return norm(t, name, made, in_place=True) if after else made

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h, word = norm(t, "operator_norm", x), words[index]
        if word == CONV:
            made = convolved(t, h, taps, conv_bias)
        else:
            own = window if word == "sliding_attention" else 0
            made = attend(t, heads, h, window=own, turn=ropes[word])
        x = add(x, normed(t, "post_operator_norm", made))
        return add(x, normed(t, "post_ffn_norm", feed(t, norm(t, "ffn_norm", x))))

    return facts, decoder_program(replace(parts.decoder, last_norm="model.embedding_norm"), layer)


def _layers(fields: Fields, layers: int) -> tuple[str, ...]:
    """Returns the word of layer_types for each layer."""
    words = fields.texts("layer_types")
    if not words:
        usual = {2: "full_attention", 0: "sliding_attention"}
        return tuple(usual.get(index % 4, CONV) if index else CONV for index in range(layers))
    known = (CONV, *THETAS)
    if len(words) != layers or any(word not in known for word in words):
        raise fields.wrong("layer_types", f"It must say {layers} times one of {', '.join(known)}.")
    return tuple(words)
