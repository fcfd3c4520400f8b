"""Ling and Ring 1 and 2: q, k and v in one tensor, experts by a softmax or by DeepSeek-V3's rule (inclusionAI 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_in_order
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.deepseek import prediction_layers
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import LARGEST, blocks_by_layer, expert_count, named_feed, sigmoid_rule
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture
from twostroke.ops.products.route import RouteRule
from twostroke.types.spec.rope import RopeSpec

SILENT = {
    **{
        "num_experts_per_tok": 2,
        "num_shared_experts": 0,
        "first_k_dense_replace": 0,
        "max_position_embeddings": 16_384,
    },
    **{"rms_norm_eps": 1e-6, "norm_topk_prob": True, "bos_token_id": 1, "eos_token_id": 126_081},
}


@architecture("BailingMoeV2ForCausalLM", "BailingMoeForCausalLM", model_type="bailing_moe")
def ling(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Ling and Ring. Generations 1 and 2 have the same model_type; the name of the architecture tells them
    apart."""
    return _first(fields) if "BailingMoeForCausalLM" in fields.texts("architectures") else _second(fields)


def _first(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Ling 1 and 1.5: whole heads are rotated and have no norms; a softmax over all experts chooses a row's
    experts."""
    refuse_setting(fields, "norm_head", "The head would have to be divided by its norm before each product.")
    refuse_setting(fields, "norm_softmax", "The model's probabilities are not those of a softmax of the logits.")
    parts, turn = _parts(fields, SILENT, normed=False, partial=None)
    fields, count = parts.fields, expert_count(parts.fields)
    chosen = fields.integer("num_experts_per_tok", 1, count)
    rule = RouteRule(chosen, normalised=fields.boolean("norm_topk_prob", True))
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    shared = fields.integer("num_shared_experts", 0, MOST_EXPERTS) * inner
    return _model(parts, turn, LinearRouter("mlp.gate", count, rule), shared)


def _second(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Ling and Ring 2: half of each head is rotated, heads have norms, and experts are chosen by groups."""
    fields = fields.changed({"scoring_func": fields.text("score_function", "sigmoid"), "norm_topk_prob": True})
    parts, turn = _parts(fields, SILENT, normed=fields.boolean("use_qk_norm", True), partial=0.5)
    fields, count = parts.fields, expert_count(parts.fields)
    biased = fields.boolean("moe_router_enable_expert_bias", True)
    rule = sigmoid_rule(fields, count)
    if not biased and rule.groups > 1:
        rule = replace(rule, best=2)
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    own = fields.optional_integer("moe_shared_expert_intermediate_size", 1, LARGEST) or inner
    shared = fields.integer("num_shared_experts", 0, MOST_EXPERTS) * own
    router = LinearRouter("mlp.gate", count, rule, choice_bias="mlp.gate.expert_bias" if biased else "")
    return _model(parts, turn, router, shared)


def _parts(
    fields: Fields, silent: Mapping[str, object], *, normed: bool, partial: float | None
) -> tuple[Parts, RopeSpec]:
    """Reads the model's attention and feed-forward settings, and the rotation that all layers share. normed: whether
    heads of q and k have norms. partial: the share of a head that is rotated, by default."""
    silu_only(fields)
    parts = read_parts(fields, silent)
    fields = parts.fields
    heads = replace(
        parts.heads,
        qkv_bias=fields.boolean("use_qkv_bias", False),
        output_bias=fields.boolean("use_bias", False),
        head_norm=parts.norm if normed else None,
        joined=joined_in_order("attention.query_key_value"),
        names=replace(
            parts.heads.names,
            **{"o": "attention.dense", "q_norm": "attention.query_layernorm", "k_norm": "attention.key_layernorm"},
        ),
    )
    feed = replace(parts.feed, bias=heads.output_bias)
    decoder = replace(parts.decoder, embedding="model.word_embeddings")
    turn = parts.rope(partial=partial, theta=600_000.0)
    return replace(parts, heads=heads, feed=feed, decoder=decoder), turn


def _model(parts: Parts, turn: RopeSpec, router: LinearRouter, shared: int) -> tuple[CommonFacts, ProgramText]:
    """Returns facts and program of a model whose layers after the first dense ones have experts. shared: the inner size
    of the shared expert, which every row uses; 0 for none."""
    fields, facts = parts.fields, parts.facts
    inner, biased = fields.integer("moe_intermediate_size", 1, LARGEST), parts.feed.bias
    block = Mixture(
        BankShape(router.experts, facts.hidden_size, inner, biased=biased),
        router,
        EachExpert("mlp.experts"),
        shared=Shared(replace(named_feed(facts.hidden_size, shared, "mlp.shared_experts"), bias=biased))
        if shared
        else None,
    )
    dense = fields.integer("first_k_dense_replace", 0, 4096)
    blocks = blocks_by_layer(mixture(block), facts.num_layers, dense)
    _, text = pre_decoder(parts, turn, blocks=blocks)
    return replace(facts, ignored=(*facts.ignored, *prediction_layers(fields))), text
