"""OLMoE: norms over the whole of q and of k, many small experts (Muennighoff et al. 2024).

Knows: its config fields, the names of its tensors. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.banks import BankShape, EachExpert
from twostroke.models.common.decoder import decoder_program
from twostroke.models.common.fields import refuse_setting, silu_only
from twostroke.models.common.layers import sparse_layer
from twostroke.models.common.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.mixture_fields import expert_count
from twostroke.models.common.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.route import RouteRule
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "intermediate_size": 2048, "eos_token_id": 50_279}


@architecture("OlmoeForCausalLM", model_type="olmoe")
def olmoe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Experts in every layer."""
    refuse_setting(fields, "clip_qkv", "Queries, keys and values that are clipped are not implemented.")
    silu_only(fields)
    parts = read_parts(fields, SILENT)
    fields, hidden = parts.fields, parts.facts.hidden_size
    biased = fields.boolean("attention_bias", False)
    parts = replace(parts, heads=replace(parts.heads, qkv_bias=biased, output_bias=biased, wide_norm=parts.norm))
    turn = rope_from_config(fields, parts.heads.head_dim, parts.facts.max_positions)
    count = expert_count(fields, 64)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count, default=8), fields.boolean("norm_topk_prob", False)
    )
    shape, router = BankShape(count, hidden, parts.feed.inner_size), LinearRouter("mlp.gate", count, rule)
    block = mixture(Mixture(shape, router, EachExpert("mlp.experts")))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return sparse_layer(t, parts, block, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
