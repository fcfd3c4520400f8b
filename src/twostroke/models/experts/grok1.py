"""Grok-1: norms around both blocks, capped scores, two of eight experts whose weights do not add up to one (xAI 2024).

The reference is xAI's published JAX code; the names of tensors are those of its conversion to safetensors by HPC-AI
Tech.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add

SILENT = {
    **{"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "gelu_pytorch_tanh", "num_experts": 8},
    **{"max_attn_value": 30.0, "attn_output_multiplier": 1.0, "tie_word_embeddings": True},
    **{"embedding_multiplier_scale": 1.0, "output_multiplier_scale": 1.0},
}
NAMES = AttentionNames("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj")
BANKS = EachExpert("moe_block.experts", gate="linear", up="linear_v", down_name="linear_1")
GELU = ("gelu", "gelu_new", "gelu_pytorch_tanh")
"""The names of the family's only activation. JAX's gelu is the approximation by tanh."""


@architecture("Grok1ModelForCausalLM", "Grok1ForCausalLM", model_type="grok-1")
def grok1(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Grok-1. Scores are multiplied by attn_output_multiplier, and not by 1 / sqrt(head_dim); max_attn_value is
    their soft cap."""
    parts = read_parts(fields, SILENT)
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    if fields.text("hidden_act", "") not in GELU:
        raise fields.wrong("hidden_act", "Experts of this family have gelu.")
    heads = replace(
        parts.heads,
        scale=fields.number("attn_output_multiplier", 1e-6, 1e6),
        soft_cap=fields.number("max_attn_value", 1e-3, 1e6),
        names=NAMES,
    )
    turn = parts.rope()
    count = expert_count(fields)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count, default=2))
    shape = BankShape(count, facts.hidden_size, parts.feed.inner_size)
    block = Mixture(shape, LinearRouter("moe_block.gate", count, rule), BANKS, ExpertRule(Activation.GELU_TANH))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        seen = attend(t, heads, norm(t, "pre_attn_norm", x), turn=turn)
        x = add(x, norm(t, "post_attn_norm", seen, in_place=True))
        made = block(t, norm(t, "pre_moe_norm", x))
        return add(x, norm(t, "post_moe_norm", made, in_place=True))

    decoder = replace(
        parts.decoder,
        embedding_scale=fields.number("embedding_multiplier_scale", 1e-6, 1e6),
        logit_scale=fields.number("output_multiplier_scale", 1e-6, 1e6),
    )
    return facts, decoder_program(decoder, layer)
