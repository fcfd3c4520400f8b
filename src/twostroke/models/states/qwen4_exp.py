"""Qwen4-Exp: Qwen3.5's layers with experts; several residual streams, which each block reads and adds to (Qwen Team
2026).

Layers with attention attend to groups of indexer_compress_ratio positions that they choose. This choice is not
implemented. Up to a certain length all groups would be chosen, so these layers see all positions; the longest sequence
has this length.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_of, logits_of_normed
from twostroke.models.common.blocks.mixture import MOST_EXPERTS
from twostroke.models.common.blocks.states.delta_net import delta_net
from twostroke.models.common.blocks.streams import GatedStreams
from twostroke.models.common.fields.fields import with_silent
from twostroke.models.common.fields.nested import language_model
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.models.states.qwen3_next import SILENT, STACKS, gated_mixture, read_hybrid, turn_of
from twostroke.ops.products.embed import embed
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.stream_shares import MOST_STREAMS
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import MAX_POSITIONS

INDEXED, ATTENDING = "indexed_attention", "full_attention"
GATES = {"silu": Activation.SILU, "sigmoid": Activation.SIGMOID}
SIZES = ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim")
"""The size fields of the indexer that chooses positions."""


@architecture("Qwen4ExpForCausalLM", model_type="qwen4_exp_text")
def qwen4_exp(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen4-Exp. Every layer has experts and a shared one. layer_types defines which layers have attention."""
    _refuse_tables(fields)
    fields = with_silent(fields, {**SILENT, **defaults("qwen4_exp_text")})
    kinds = [ATTENDING if kind == INDEXED else kind for kind in fields.texts("layer_types")]
    shape = read_hybrid(fields.changed({"layer_types": kinds or None}), by_key_head=False)
    fields, facts, layers = shape.fields, shape.facts, shape.facts.num_layers
    delta = replace(shape.delta, gate=_gate(fields))
    block = gated_mixture(fields, facts, fields.integer("num_experts", 1, MOST_EXPERTS))
    streams = GatedStreams(
        fields.integer("hc_count", 2, MOST_STREAMS),
        facts.hidden_size,
        fields.integer("hc_lowrank", 1, 1 << 16),
        shape.norm.eps,
    )
    decoder, turn = decoder_of(facts, shape.norm, shape.tied), turn_of(shape, 1.0)

    def seen(t: Tracer, index: int, h: Value) -> Value:
        if shape.attending[index]:
            return attend(t, shape.heads, h, turn=turn)
        with t.layer("linear_attn."):
            return delta_net(t, delta, h)

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {decoder.embedding: facts.vocab_size}, facts.hidden_size)
        x = streams.begin(t, embed(table, t.token_ids, t))
        for index in range(layers):
            with t.layer(f"{decoder.layers}.{index}."):
                h, shares = streams.read(t, "attn_hyper_connection", x)
                x = streams.write(x, shares, seen(t, index, h))
                h, shares = streams.read(t, "mlp_hyper_connection", x)
                x = streams.write(x, shares, block(t, h))
        rows = gather_rows(x.flat(), t.logit_rows).heads(streams.count)
        return logits_of_normed(t, decoder, streams.end(t, "model.hyper_connection_mixer", rows))

    unread = tuple(f"{decoder.layers}.{index}.self_attn.indexer." for index in range(layers))
    longest = min(facts.max_positions, _seen_whole(fields)) if any(shape.attending) else facts.max_positions
    return replace(facts, max_positions=longest, ignored=(*facts.ignored, *unread), stacks=STACKS), text


@architecture("Qwen4ExpForConditionalGeneration", model_type="qwen4_exp")
def qwen4_exp_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return language_model(fields, "Qwen4ExpForCausalLM")


def _refuse_tables(fields: Fields) -> None:
    layers = fields.integers("ple_layer_ids")
    if layers:
        raise UnsupportedModel(
            f"{fields.place}: ple_layer_ids names {len(layers)} layers.",
            why="They add rows of tables that several tokens choose together by a hash, which no op does here.",
            fix="Use a model of this family whose ple_layer_ids is empty.",
        )


def _gate(fields: Fields) -> Activation:
    word = fields.text("output_gate_type", fields.text("hidden_act", "silu"))
    if word not in GATES:
        raise fields.wrong("output_gate_type", f"It must be one of {', '.join(GATES)}.")
    return GATES[word]


def _seen_whole(fields: Fields) -> int:
    """Returns the number of positions of the groups that may be chosen, and of one unfinished group, which is always
    seen. Up to this length, a layer that chooses groups sees every position."""
    for name in SIZES:
        fields.integer(name, 1, 1 << 16)
    group = fields.integer("indexer_compress_ratio", 1, MAX_POSITIONS)
    chosen = fields.integer("indexer_budget", group, MAX_POSITIONS)
    if chosen % group:
        raise fields.wrong("indexer_budget", f"It must be a multiple of indexer_compress_ratio, {group}.")
    return chosen + group - 1
