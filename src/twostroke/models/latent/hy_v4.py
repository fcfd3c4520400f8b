"""Hunyuan 4: latent attention to chosen positions, with sinks and a gate; several residual streams, which each block
reads and adds to (Tencent 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import logits_of
from twostroke.models.common.blocks.index import Index, choose
from twostroke.models.common.blocks.latent import LatentHeads, keep_latents, output, queries, query_latent
from twostroke.models.common.blocks.streams import KeptStreams
from twostroke.models.common.fields.deepseek import (
    STACKS,
    biased_mixture,
    choosing_layers,
    indexed_parts,
    layers_with_experts,
)
from twostroke.models.common.fields.fields import refuse_setting
from twostroke.models.common.fields.latent import LatentParts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.chosen_latent_attention import chosen_latent_attention
from twostroke.ops.products.embed import embed
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.stream_shares import MOST_STREAMS

SILENT = {**defaults("hy_v4"), "index_topk_freq": 4}
GATES = ("mlp.linear_gate.", "mlp.shared_experts.linear_gate.")
"""The names that transformers 5.23 writes for gate_proj of feed-forward blocks; published files have gate_proj."""
STREAMS = "hc_pre.hc_attn_layer.hc", "hc_pre.hc_mlp_layer.hc"


@architecture("HYV4ForCausalLM", model_type="hy_v4")
def hy_v4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Hunyuan 4. indexer_types gives for each layer whether it chooses positions (full) or takes those that the
    last full layer chose (shared)."""
    refuse_setting(fields, "attention_bias", "No published model of this family has biases in its attention.")
    parts, index = indexed_parts(fields, SILENT, heads=16, side_by_side=False)
    fields, facts = parts.fields, parts.facts
    index = replace(index, turned_last=True, eps=parts.norm.eps)
    layers = facts.num_layers
    own, sparse = choosing_layers(fields, layers), layers_with_experts(parts, 1)
    # The meaning of a limit of 0 is not clear: the published code and text differ.
    limit = fields.number("swiglu_limit", 1e-3, 1e6, default=10.0)
    block = replace(biased_mixture(parts), banks=STACKS, rule=ExpertRule(Activation.SILU, limit))
    streams = KeptStreams(
        fields.integer("hc_mult", 2, MOST_STREAMS, default=4),
        facts.hidden_size,
        1,
        fields.number("hc_eps", 0.0, 0.1, default=1e-6),
        parts.norm.eps,
        most=fields.number("hc_magnitude", 1e-3, 1e3, default=2.0),
    )

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {parts.decoder.embedding: facts.vocab_size}, facts.hidden_size)
        x, found = streams.begin(t, embed(table, t.token_ids, t)), None
        for number in range(layers):
            with t.layer(f"model.layers.{number}."):
                h, shares = streams.read(t, STREAMS[0], x)
                h = parts.norm(t, "input_layernorm", h, in_place=True)
                seen, found = _attend(t, parts.heads, index, h, None if own[number] else found)
                x = streams.write(x, shares, seen)
                h, shares = streams.read(t, STREAMS[1], x)
                h = parts.norm(t, "post_attention_layernorm", h, in_place=True)
                x = streams.write(x, shares, block(t, h) if sparse[number] else parts.feed(t, h))
        rows = gather_rows(x.flat(), t.logit_rows).heads(streams.count)
        return logits_of(t, parts.decoder, streams.end(t, "model.hc_pre.hc_head.hc_head", rows))

    return _facts(parts), text


def _attend(t: Tracer, shape: LatentHeads, index: Index, h: Value, found: Value | None) -> tuple[Value, Value]:
    """Returns the block's output and the positions that each row attends to. found: the positions that an earlier layer
    has chosen; None where this layer chooses them."""
    cache, latent, name = keep_latents(t, shape, h), query_latent(t, shape, h), shape.name
    chosen = choose(t, shape, index, h, latent) if found is None else found
    asked, turned = queries(t, shape, latent)
    sinks = t.vector(f"{name}.learnable_sink_param", shape.num_heads, suffix="")
    seen = chosen_latent_attention(asked, turned, chosen, cache, shape.scale, sinks)
    gates = {f"{name}.linear_gate": shape.num_heads * shape.value_dim}
    return output(t, shape, seen, linear(h, t.matrix("gate", gates, shape.hidden_size))), chosen


def _facts(parts: LatentParts) -> CommonFacts:
    layers = (f"model.layers.{number}." for number in range(parts.facts.num_layers))
    renamed = ((layer + name, layer + name.replace("linear_gate", "gate_proj")) for layer in layers for name in GATES)
    ignored = (*parts.facts.ignored, "model.mtp_layers.")
    return replace(parts.facts, ignored=ignored, stored_prefixes=tuple(renamed))
