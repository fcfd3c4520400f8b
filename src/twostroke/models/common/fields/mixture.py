"""Reads the fields of mixtures of experts that several families share, under the names that transformers gives them."""

from __future__ import annotations

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.feed import Feed, FeedForwardText
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only, usual_names
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields

LARGEST = 1 << 20
"""The largest inner size of an expert or another feed-forward block that a config may have."""
SAME = {"num_local_experts": "num_experts", "n_routed_experts": "num_experts", "moe_num_experts": "num_experts"}
"""The names that configs use for the number of experts, each with the usual name."""
CORRECTION = "mlp.gate.e_score_correction_bias"


def expert_count(fields: Fields, absent: int | None = None) -> int:
    """Reads how many experts a layer has: num_experts, num_local_experts, n_routed_experts or moe_num_experts.

    Raises CorruptModel where two of them differ.
    """
    return usual_names(fields, SAME).integer("num_experts", 1, MOST_EXPERTS, default=absent)


def sigmoid_rule(fields: Fields, count: int, chosen: int | None = None) -> RouteRule:
    """Reads DeepSeek-V3's rule for choosing experts: scores by a sigmoid, groups of experts, weights that add up to
    routed_scaling_factor."""
    if fields.text("scoring_func", "sigmoid") == "softmax":
        raise UnsupportedModel(
            "config.json: scoring_func is softmax.",
            why="This family's router makes scores by a sigmoid, in transformers too.",
            fix="Use a model of this family whose scoring_func is sigmoid.",
        )
    groups, kept = expert_groups(fields, count, 2, 1)
    return RouteRule(
        chosen=fields.integer("num_experts_per_tok", 1, kept * count // groups, default=chosen),
        normalised=fields.boolean("norm_topk_prob", True),
        scores=Scores.SIGMOID,
        groups=groups,
        kept=kept,
        best=2 if groups > 1 else 1,
        added=1e-20,
        factor=fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0),
    )


def expert_groups(fields: Fields, count: int, least: int, usual: int | None) -> tuple[int, int]:
    """Reads n_group and topk_group: into how many groups the `count` experts are divided, and from how many of the
    groups a token takes its experts. least: the fewest experts of a group. usual: the value of an absent field; None
    where fields must be there."""
    groups = fields.integer("n_group", 1, count, default=usual)
    if count % groups or (groups > 1 and count // groups < least):
        raise fields.wrong("n_group", f"It must divide the {count} experts into groups of {least} or more.")
    return groups, fields.integer("topk_group", 1, groups, default=usual)


def named_feed(hidden: int, inner: int, begin: str) -> Feed:
    """Returns a gated feed-forward block. begin: the beginning of the names of its tensors."""
    return Feed(hidden, inner, gate=f"{begin}.gate_proj", up=f"{begin}.up_proj", down=f"{begin}.down_proj")


def sigmoid_mixture(fields: Fields, hidden: int, correction: str = CORRECTION) -> FeedForwardText:
    """Reads experts chosen by DeepSeek-V3's rule, and n_shared_experts that every token goes through, under
    DeepSeek-V3's names of tensors."""
    silu_only(fields)
    count = expert_count(fields)
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    fields = usual_names(fields, {"num_shared_experts": "n_shared_experts"})
    shared = fields.integer("n_shared_experts", 0, MOST_EXPERTS, default=0)
    return mixture(
        Mixture(
            BankShape(count, hidden, inner),
            LinearRouter("mlp.gate", count, sigmoid_rule(fields, count), choice_bias=correction),
            EachExpert("mlp.experts"),
            shared=Shared(named_feed(hidden, shared * inner, "mlp.shared_experts")) if shared else None,
        )
    )


def listed_blocks(
    fields: Fields, block: FeedForwardText, layers: int, dense: int
) -> tuple[FeedForwardText | None, ...]:
    """Returns the mixture of each layer, or None for a dense one. mlp_layer_types gives dense or sparse for each layer;
    without it the first `dense` layers are dense."""
    words = fields.texts("mlp_layer_types")
    if not words:
        return blocks_by_layer(block, layers, dense)
    if len(words) != layers or any(word not in ("dense", "sparse") for word in words):
        raise fields.wrong("mlp_layer_types", f"It must say {layers} times dense or sparse.")
    return tuple(block if word == "sparse" else None for word in words)


def blocks_by_layer(
    block: FeedForwardText, layers: int, dense: int, step: int = 1
) -> tuple[FeedForwardText | None, ...]:
    """Returns each layer's mixture. It is None, which means the usual block, for the first `dense` layers, and for
    layers whose number, counted from 1, is not a multiple of `step`."""
    return tuple(block if index >= dense and (index + 1) % step == 0 else None for index in range(layers))
