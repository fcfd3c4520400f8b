"""ERNIE 4.5 MoE: interleaved rotary pairs, experts chosen by biased softmax, shared ones (Baidu 2025).

Knows: its config fields, the names of its tensors. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import sparse_layer
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.products.route import RouteRule
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {
    **{"max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "moe_num_experts": 64},
    **{"bos_token_id": 1, "eos_token_id": 2, "moe_k": 6, "moe_num_shared_experts": 2, "moe_intermediate_size": 1536},
}
CORRECTION = "mlp.moe_statics.e_score_correction_bias"


@architecture("Ernie4_5_MoeForCausalLM", model_type="ernie4_5_moe")
def ernie4_5_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Layers from moe_layer_start_index to moe_layer_end_index (-1: the last) have experts, by moe_layer_interval."""
    silu_only(fields)
    refuse_setting(fields, "use_bias", "Products with biases are not implemented in this family.")
    parts = read_parts(fields, SILENT, kv_absent=4)
    fields, layers = parts.fields, parts.facts.num_layers
    heads = replace(parts.heads, interleaved=True)
    parts = replace(parts, heads=heads)
    turn = rope_from_config(fields, heads.head_dim, parts.facts.max_positions, theta=500_000.0)
    first, step = fields.integer("moe_layer_start_index", 0, 4096, default=1), _interval(fields)
    last = fields.integer("moe_layer_end_index", -1, 4096, default=-1)
    last = layers - 1 if last == -1 else last
    block = mixture(_mixture(fields, parts.facts.hidden_size))
    sparse = [first <= index <= last and (index + 1) % step == 0 for index in range(layers)]

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return sparse_layer(t, parts, block if sparse[index] else None, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)


def _interval(fields: Fields) -> int:
    return fields.integer("moe_layer_interval", 1, 4096, default=1)


def _mixture(fields: Fields, hidden: int) -> Mixture:
    count = expert_count(fields)
    least = fields.number("moe_norm_min", 0.0, 1.0, default=1e-12)
    rule = RouteRule(fields.integer("moe_k", 1, count), normalised=True, least=least)
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    shared = fields.integer("moe_num_shared_experts", 0, MOST_EXPERTS)
    feed = named_feed(hidden, shared * inner, "mlp.shared_experts")
    return Mixture(
        BankShape(count, hidden, inner),
        LinearRouter("mlp.gate", count, rule, choice_bias=CORRECTION, choice_shape=(1, count)),
        EachExpert("mlp.experts"),
        shared=Shared(feed) if shared else None,
    )
