"""Llama 4: layers with rotations see chunks of positions, others see everything; one expert for each token, and a
shared expert (Meta 2025)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import MAX_POSITIONS, RopeSpec

BANKS = Stacks("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj", transposed=True)

AttentionText = Callable[[Tracer, int, Value], Value]


@architecture("Llama4ForCausalLM", model_type="llama4_text")
def llama4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Llama 4. Layers with rotations see their own chunk of attention_chunk_size positions. The others see all
    earlier positions, and their queries grow with the logarithm of the position."""
    silu_only(fields)
    parts = read_parts(fields, defaults("llama4_text"), kv_absent=8)
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    blocks = _blocks(fields, facts.hidden_size, facts.num_layers)
    attention = _attention(parts)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        x = add(x, attention(t, index, norm(t, "input_layernorm", x)))
        return blocks[index](t, x, norm(t, "post_attention_layernorm", x))

    return facts, decoder_program(parts.decoder, layer)


@architecture("Llama4ForConditionalGeneration", model_type="llama4")
def llama4_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return language_model(fields, "Llama4ForCausalLM")


def _attention(parts: Parts) -> AttentionText:
    fields, layers = parts.fields, parts.facts.num_layers
    heads = replace(parts.biased_heads(), interleaved=True)
    turn = parts.rope(theta=500_000.0)
    unit = Norm(parts.norm.eps, NormKind.UNIT) if fields.boolean("use_qk_norm", True) else None
    turning = replace(heads, head_norm=unit, norm_after_rope=True)
    # Published files give a number of layers here, but transformers reads it as true or false.
    tuned = bool(fields.value("attn_temperature_tuning", True))
    still: RopeSpec | None = None
    if tuned:
        floor = fields.integer("floor_scale", 1, MAX_POSITIONS)
        still = replace(turn, original_positions=floor, ahead=1, still=True, attention_factor=1.0)
    growing: Heads = replace(heads, query_growth=fields.number("attn_scale", 0.0, 1e3) if tuned else 0.0)
    turns = _turning(fields, layers)
    chunks = _chunks(fields, turns)

    def text(t: Tracer, index: int, h: Value) -> Value:
        window = chunks[index]
        shape, spec = (turning, turn) if turns[index] else (growing, still)
        return attend(t, shape, h, window=window, turn=spec, chunked=window > 0)

    return text


def _turning(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Returns for each layer whether it has rotations. no_rope_layers has 1 for such layers; where it is absent or
    empty, all layers but every fourth have them."""
    named = fields.integers("no_rope_layers")
    if not named:
        every = fields.integer("no_rope_layer_interval", 1, 4096)
        return tuple((index + 1) % every != 0 for index in range(layers))
    if len(named) != layers or any(each not in (0, 1) for each in named):
        raise fields.wrong("no_rope_layers", f"It must say {layers} times 0 or 1.")
    return tuple(each == 1 for each in named)


def _chunks(fields: Fields, turns: tuple[bool, ...]) -> tuple[int, ...]:
    """Returns the number of positions in a chunk for each layer, 0 for a layer that sees everything. layer_types
    decides it; without it, layers with rotations have chunks."""
    size = fields.optional_integer("attention_chunk_size", 1, MAX_POSITIONS)
    size = size or (0 if fields.has("attention_chunk_size") else 8192)
    types = fields.texts("layer_types") or ["chunked_attention" if each else "full_attention" for each in turns]
    known = {"chunked_attention": size, "full_attention": 0}
    if len(types) != len(turns) or any(each not in known for each in types):
        raise fields.wrong("layer_types", f"It must say chunked_attention or full_attention {len(turns)} times.")
    return tuple(known[each] for each in types)


def _blocks(fields: Fields, hidden: int, layers: int) -> tuple[FeedForwardText, ...]:
    """Returns the feed-forward block of each layer. The layers in moe_layers, or every interleave_moe_layer_step-th
    layer, have experts."""
    step = fields.integer("interleave_moe_layer_step", 1, 4096)
    usual = range(step - 1, layers, step)
    sparse = set(fields.integers("moe_layers")) if fields.has("moe_layers") else set(usual)
    count, inner = expert_count(fields), fields.integer("intermediate_size", 1, LARGEST)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), scores=Scores.SIGMOID)
    experts = mixture(
        Mixture(
            BankShape(count, hidden, inner),
            LinearRouter("feed_forward.router", count, rule),
            BANKS,
            ExpertRule(weigh_inputs=True),
            Shared(named_feed(hidden, inner, "feed_forward.shared_expert")),
        )
    )
    feed = named_feed(hidden, fields.integer("intermediate_size_mlp", 1, LARGEST), "feed_forward")

    def dense(t: Tracer, residual: Value, h: Value) -> Value:
        return add(residual, feed(t, h))

    return tuple(experts if index in sparse else dense for index in range(layers))
