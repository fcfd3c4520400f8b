"""Phi-3.5-MoE: layer norms, biases, two experts chosen one after the other (Microsoft 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import Mixture, Router, mixture
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import Parts, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.products.sparse_mixer import sparse_mixer
from twostroke.types.spec.rope import RopeKind, RopeSpec

BANKS = EachExpert("block_sparse_moe.experts", gate="w1", up="w3", down_name="w2")
CHOSEN = 2
"""The number of experts for each token. Other numbers are refused, because transformers defines this router's rule
(sparsemixer) for two experts only."""


@architecture("PhimoeForCausalLM", "PhiMoEForCausalLM", model_type="phimoe")
def phimoe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Phi-3.5-MoE. In training, router_jitter_noise is also the size of a noise on the router's inputs; here
    there is no noise. The field still limits the softmax that gives a chosen expert its weight: only experts whose
    scores are near enough to the chosen one take part (ops/products/sparse_mixer.py)."""
    silu_only(fields)
    parts = read_parts(fields, defaults("phimoe"), kv_absent=8, kind=NormKind.LAYER)
    fields, hidden = parts.fields, parts.facts.hidden_size
    parts = replace(
        parts,
        heads=parts.biased_heads(),
        decoder=replace(parts.decoder, head_bias=fields.boolean("lm_head_bias", False)),
    )
    turn, window = _turn(parts), window_of(fields, 0)
    count = expert_count(fields)
    if fields.integer("num_experts_per_tok", 1, count, default=CHOSEN) != CHOSEN:
        raise fields.wrong("num_experts_per_tok", f"A token uses {CHOSEN} experts in this family.")
    router = _router(count, fields.number("router_jitter_noise", 0.0, 10.0, default=0.01))
    block = mixture(Mixture(BankShape(count, hidden, parts.feed.inner_size), router, BANKS))
    layers = parts.facts.num_layers
    return pre_decoder(parts, turn, windows=(window,) * layers, blocks=(block,) * layers)


def _router(count: int, jitter: float) -> Router:
    def router(t: Tracer, h: Value) -> Value:
        logits = linear(h, t.matrix("router", {"block_sparse_moe.gate": count}, h.width))
        return sparse_mixer(logits, CHOSEN, jitter)

    return router


def _turn(parts: Parts) -> RopeSpec:
    """Reads the rotation. Longrope multiplies cosines and sines by short_mscale or long_mscale; only equal ones are
    implemented.

    For contexts longer than the trained one the long factors are used, as in the published code; transformers 5.23 uses
    the short ones at any length.
    """
    fields = parts.fields
    turn = parts.rope(theta=1e6)
    if turn.kind is RopeKind.DEFAULT:
        return turn
    group = fields.group("rope_scaling") or fields.group("rope_parameters") or fields
    short, long = (group.number(name, 1e-3, 1e3) for name in ("short_mscale", "long_mscale"))
    if short != long:
        raise group.wrong("long_mscale", f"It must be equal to short_mscale, {short:g}.")
    return replace(turn, attention_factor=short)
