"""Kolibri 1: Qwen3's heads, rotations only in layers with a window, norms around both blocks (Aleph Alpha 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.read import pattern_windows, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.expressions import add

SILENT = defaults("kolibri1")
PATTERN = 5
"""Every PATTERN-th layer sees everything."""


@architecture("Kolibri1ForCausalLM", model_type="kolibri1")
def kolibri1(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Experts are chosen by logit plus bias and weighted by the logit's sigmoid."""
    silu_only(fields)
    refuse_setting(fields, "attention_bias", "No published model of this family has biases in its attention.")
    parts = read_parts(fields.changed({"intermediate_size": 1}), SILENT, kv_absent=4)  # there is no dense layer
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    heads = replace(parts.heads, head_norm=norm)
    turn = parts.rope()
    window = window_of(fields, 513)
    if not window:
        raise fields.wrong("sliding_window", "transformers cannot run a model of this family without it.")
    windows = pattern_windows(fields, facts.num_layers, window, PATTERN)
    block = _mixture(fields, facts.hidden_size)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        seen = attend(t, heads, h, window=windows[index], turn=turn if windows[index] else None)
        x = add(x, norm(t, "post_attn_norm", seen, in_place=True))
        made = block(t, norm(t, "post_attention_layernorm", x))
        return add(x, norm(t, "post_ffn_norm", made, in_place=True))

    return facts, decoder_program(parts.decoder, layer)


def _mixture(fields: Fields, hidden: int) -> Mixture:
    count = expert_count(fields, 384)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        fields.boolean("norm_topk_prob", False),
        Scores.SIGMOID_OF_LOGIT,
    )
    shared = fields.integer("shared_expert_intermediate_size", 1, LARGEST)
    return Mixture(
        BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST)),
        LinearRouter("mlp.gate", count, rule, choice_bias="moe.router.expert_bias"),
        EachExpert("mlp.experts"),
        shared=Shared(named_feed(hidden, shared, "mlp.shared_experts")),
    )
