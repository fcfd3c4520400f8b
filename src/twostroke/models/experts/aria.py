"""Aria: Llama with small experts, stored in stacks, and shared experts in every layer (Rhymes AI 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import expert_count, named_feed
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule

BANKS = Stacks("mlp.experts.fc1.weight", "mlp.experts.fc2.weight", transposed=True)


@architecture("AriaTextForCausalLM", model_type="aria_text")
def aria_text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Aria's language model. intermediate_size is the inner size of one expert. Every row also goes through
    moe_num_shared_experts experts of this size."""
    silu_only(fields)
    parts = read_parts(fields, defaults("aria_text"))
    fields, hidden, inner = parts.fields, parts.facts.hidden_size, parts.feed.inner_size
    parts = replace(parts, heads=parts.biased_heads())
    turn = parts.rope()
    count = expert_count(fields, 8)
    rule = RouteRule(fields.integer("moe_topk", 1, count, default=2), normalised=True)
    shared = inner * fields.integer("moe_num_shared_experts", 1, MOST_EXPERTS, default=2)
    feed = replace(named_feed(hidden, shared, "mlp.shared_experts"), bias=fields.boolean("mlp_bias", False))
    router = LinearRouter("mlp.router", count, rule)
    block = mixture(Mixture(BankShape(count, hidden, inner), router, BANKS, shared=Shared(feed)))
    return pre_decoder(parts, turn, blocks=(block,) * parts.facts.num_layers)


@architecture("AriaForConditionalGeneration", model_type="aria")
def aria(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return language_model(fields, "AriaTextForCausalLM")
