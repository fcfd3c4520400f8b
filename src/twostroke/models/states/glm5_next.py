"""GLM-5.3-Flash: three layers of Kimi delta attention for one of latent attention; several residual streams, which each
block reads and adds to (Z.ai 2026). There are no rotations.

Layers with latent attention attend to groups of index_kpool positions that they choose. This choice is not implemented.
Up to a certain length all groups would be chosen, so these layers see all positions; the longest sequence has this
length.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import logits_of
from twostroke.models.common.blocks.encoder import BlockText
from twostroke.models.common.blocks.latent import attend_latents
from twostroke.models.common.blocks.mixture import ClampedFeed
from twostroke.models.common.blocks.states.kimi_delta import KimiDeltaShape, kimi_delta
from twostroke.models.common.blocks.streams import MixedStreams
from twostroke.models.common.fields.deepseek import biased_mixture, layers_with_experts, require
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.latent import LatentParts, read_latent
from twostroke.models.common.fields.nested import text_model_or_flat
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, scale
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.stream_shares import MOST_STREAMS
from twostroke.types.spec.rope import MAX_POSITIONS

GROUP = {
    **{"head_dim": "linear_head_dim", "num_heads": "linear_num_heads", "gate_lower_bound": "linear_lower_bound"},
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""The fields of linear_attn_config in published configs, each with the name that transformers has for it."""
LINEAR, ATTENDING = "linear_attention", ("indexed_attention", "full_attention")
LOWEST = -5.0


@architecture("Glm5NextForConditionalGeneration", model_type="glm5_next")
def glm5_next(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return text_model_or_flat(fields, Architecture("Glm5NextText", "glm5_next_text", _text))


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model. layer_types defines which layers have latent attention; where it is absent, every
    fourth layer has it."""
    parts = _read(fields)
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    layers, blocks = facts.num_layers, _blocks(parts)
    attending = _attending(fields, layers)
    states = KimiDeltaShape(
        facts.hidden_size,
        fields.integer("linear_num_heads", 1, 4096),
        fields.integer("linear_head_dim", 1, 512),
        fields.integer("linear_conv_kernel_dim", 2, 64),
        norm.eps,
        lowest=fields.optional_number("linear_lower_bound", -1e3, -1e-3) or 0.0,
        wide_logs=False,
    )
    streams = MixedStreams(
        fields.integer("hc_mult", 2, MOST_STREAMS, default=4),
        facts.hidden_size,
        fields.integer("hc_sinkhorn_iters", 1, 1000, default=20),
        fields.number("hc_eps", 0.0, 0.1, default=1e-6),
        norm.eps,
    )

    def seen(t: Tracer, index: int, h: Value) -> Value:
        if attending[index]:
            return attend_latents(t, parts.heads, h)
        with t.layer("self_attn."):
            return kimi_delta(t, states, h)

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {parts.decoder.embedding: facts.vocab_size}, facts.hidden_size)
        x = streams.begin(t, embed(table, t.token_ids, t))
        for index in range(layers):
            with t.layer(f"model.layers.{index}."):
                h, shares = streams.read(t, "hc_attn", x)
                x = streams.write(x, shares, seen(t, index, norm(t, "input_layernorm", h, in_place=True)))
                h, shares = streams.read(t, "hc_ffn", x)
                made = blocks[index](t, norm(t, "post_attention_layernorm", h, in_place=True))
                x = streams.write(x, shares, made)
        first, *others = gather_rows(x.flat(), t.logit_rows).split(*(facts.hidden_size,) * streams.count)
        for other in others:
            first = add(first, other)
        return logits_of(t, parts.decoder, scale(first, 1 / streams.count))

    unread = (f"model.layers.{index}.self_attn.indexer." for index in range(layers))
    behind = f"model.layers.{layers}."  # the layer that predicts further tokens
    longest = min(facts.max_positions, _seen_whole(fields)) if any(attending) else facts.max_positions
    return replace(facts, max_positions=longest, ignored=(*facts.ignored, *unread, behind)), text


def _read(fields: Fields) -> LatentParts:
    silu_only(fields)
    refuse_setting(fields, "attention_bias", "No published model of this family has biases in its attention.")
    require(fields, "scoring_func", "sigmoid")
    fields.integer("qk_rope_head_dim", 0, 0, default=0)
    group = fields.group("linear_attn_config")
    if group is not None:
        own = {usual: group.values[name] for name, usual in GROUP.items() if group.value(name) is not None}
        lowest = LOWEST if group.boolean("safe_gate", True) else None
        fields = fields.changed({"linear_lower_bound": lowest, **own})
    elif not fields.has("linear_lower_bound"):
        fields = fields.changed({"linear_lower_bound": LOWEST})
    # 2 is the smallest value that can be read. No part of a head is kept for rotations.
    parts = read_latent(fields.changed({"qk_rope_head_dim": 2}), defaults("glm5_next_text"), interleaved=False)
    if not parts.heads.query_rank:
        raise fields.wrong("q_lora_rank", "Queries of this family are made of a latent.")
    heads = replace(parts.heads, turned=0, turn=None, scale=parts.heads.plain**-0.5, norm=parts.norm)
    return replace(parts, heads=heads)


def _attending(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.texts("layer_types") or tuple(LINEAR if index % 4 != 3 else ATTENDING[0] for index in range(layers))
    if len(kinds) != layers or any(kind not in (LINEAR, *ATTENDING) for kind in kinds):
        raise fields.wrong("layer_types", f"It must say {layers} times {LINEAR} or {ATTENDING[0]}.")
    return tuple(kind != LINEAR for kind in kinds)


def _seen_whole(fields: Fields) -> int:
    """Returns the largest length of a sequence at which layers that choose groups still see every position. An
    incomplete last group is always seen."""
    if not fields.boolean("index_kpool_always_select_tail", True):
        raise fields.wrong("index_kpool_always_select_tail", "The last positions would not be seen.")
    pool = fields.integer("index_kpool", 1, MAX_POSITIONS, default=16)
    chosen = fields.integer("index_topk", pool, MAX_POSITIONS, default=2048)
    if chosen % pool:
        raise fields.wrong("index_topk", f"It must be a multiple of index_kpool, {pool}.")
    return chosen + pool - 1


def _blocks(parts: LatentParts) -> list[BlockText]:
    """Returns the feed-forward block of each layer. The values of gates, and the values that gates multiply, are held
    within swiglu_limit."""
    fields, hidden = parts.fields, parts.facts.hidden_size
    rule = ExpertRule(Activation.SILU, fields.number("swiglu_limit", 1e-3, 1e6))
    mixed = biased_mixture(parts)
    shared = mixed.shared.feed.inner_size if mixed.shared else 0
    experts = replace(mixed, rule=rule, shared=None)
    every = ClampedFeed(hidden, shared, rule, "mlp.shared_experts")
    dense = ClampedFeed(hidden, parts.feed.inner_size, rule, "mlp")

    def block(t: Tracer, h: Value) -> Value:
        made = experts(t, h)
        return add(made, every(t, h)) if shared else made

    return [block if each else dense for each in layers_with_experts(parts, 3)]
