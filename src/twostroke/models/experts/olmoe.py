"""OLMoE and FlexOlmo: norms over the whole of q and of k, experts in every layer (Muennighoff et al. 2024; Ai2 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import sparse_layer
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import clip_of, refuse_setting, silu_only
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import RopeSpec

FLEX_SILENT = {
    **{"max_position_embeddings": 4096, "intermediate_size": 11_008, "eos_token_id": 100_257, "rope_theta": 5e5},
    "num_experts_per_tok": 5,
}


@dataclass(frozen=True, slots=True)
class Sparse:
    """What was read from a config: the attention and its rotation, and the mixture of experts that every layer has."""

    parts: Parts
    turn: RopeSpec
    block: Mixture


@architecture("OlmoeForCausalLM", model_type="olmoe")
def olmoe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads OLMoE, which has a norm before each block."""
    shape = _read(fields, defaults("olmoe"), 64, clip_of(fields))
    block = mixture(shape.block)

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return sparse_layer(t, shape.parts, block, x, turn=shape.turn)

    return shape.parts.facts, decoder_program(shape.parts.decoder, layer)


@architecture("FlexOlmoForCausalLM", model_type="flex_olmo")
def flex_olmo(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads FlexOlmo, which has a norm after each block."""
    refuse_setting(fields, "clip_qkv", "transformers ignores it for this family: what it means is not settled.")
    shape = _read(fields, FLEX_SILENT, 7)
    parts = shape.parts

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        seen = attend(t, parts.heads, x, turn=shape.turn)
        x = add(x, parts.norm(t, "post_attention_layernorm", seen, in_place=True))
        return add(x, parts.norm(t, "post_feedforward_layernorm", shape.block(t, x), in_place=True))

    return parts.facts, decoder_program(parts.decoder, layer)


def _read(fields: Fields, silent: Mapping[str, object], experts: int, clip: float = 0.0) -> Sparse:
    """Reads a model. experts: the number of experts where the config does not have the field. clip: q, k and v are
    clipped to -clip .. clip; 0 for no limit."""
    refuse_setting(fields, "sliding_window", "Only some of the attention implementations of transformers apply it.")
    silu_only(fields)
    parts = read_parts(fields, silent)
    fields, hidden = parts.fields, parts.facts.hidden_size
    heads = replace(parts.biased_heads(), wide_norm=parts.norm, clip=clip)
    parts = replace(parts, heads=heads)
    turn = parts.rope()
    count = expert_count(fields, experts)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), fields.boolean("norm_topk_prob", False))
    shape, router = BankShape(count, hidden, parts.feed.inner_size), LinearRouter("mlp.gate", count, rule)
    return Sparse(parts, turn, Mixture(shape, router, EachExpert("mlp.experts")))
