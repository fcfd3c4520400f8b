"""DeepSeek MoE 16B: Llama's attention, fine-grained experts chosen by a softmax, and shared experts (Dai et al.
2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import LARGEST, blocks_by_layer, expert_count, named_feed
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture
from twostroke.ops.products.route import RouteRule
from twostroke.types.errors import UnsupportedModel

SILENT = {
    **{"moe_intermediate_size": 1407, "first_k_dense_replace": 0, "moe_layer_freq": 1, "norm_topk_prob": False},
    **{"bos_token_id": 100_000, "eos_token_id": 100_001},
}


@architecture("DeepseekForCausalLM", model_type="deepseek")
def deepseek(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeepSeek MoE. The first first_k_dense_replace layers have no experts; of the others, only those whose
    number is a multiple of moe_layer_freq have experts."""
    silu_only(fields)
    parts = read_parts(fields, SILENT)
    fields, facts = parts.fields, parts.facts
    if fields.text("scoring_func", "softmax") != "softmax":
        raise UnsupportedModel(
            f"{fields.place}: scoring_func is {fields.text('scoring_func', '')[:40]!r}.",
            why="The family's router makes scores by a softmax.",
            fix="Use a model of this family whose scoring_func is softmax.",
        )
    turn = parts.rope()
    parts = replace(parts, heads=parts.biased_heads())
    count, inner = expert_count(fields), fields.integer("moe_intermediate_size", 1, LARGEST)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        normalised=fields.boolean("norm_topk_prob", False),
        factor=fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0),
    )
    shared = (fields.optional_integer("n_shared_experts", 0, MOST_EXPERTS) or 0) * inner
    block = Mixture(
        BankShape(count, facts.hidden_size, inner),
        LinearRouter("mlp.gate", count, rule),
        EachExpert("mlp.experts"),
        shared=Shared(named_feed(facts.hidden_size, shared, "mlp.shared_experts")) if shared else None,
    )
    dense, step = fields.integer("first_k_dense_replace", 0, 4096), fields.integer("moe_layer_freq", 1, 4096)
    usual = blocks_by_layer(mixture(block), facts.num_layers, dense)
    blocks = tuple(each if index % step == 0 else None for index, each in enumerate(usual))
    return pre_decoder(parts, turn, blocks=blocks)
