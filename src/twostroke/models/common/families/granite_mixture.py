"""The mixture of experts of Granite's families, and its scaling factors (such as residual_multiplier), which are read
from the config."""

from __future__ import annotations

from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared
from twostroke.models.common.fields.mixture import expert_count
from twostroke.ops.products.route import RouteRule
from twostroke.types.spec.fields import Fields

SMALLEST, LARGEST = 1e-9, 1e6
"""The least and the largest value of a scaling factor that a config may have."""
BANKS = Stacks("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight")
ROUTER = "block_sparse_moe.router.layer"


def granite_factor(fields: Fields, name: str) -> float:
    """Reads the scaling factor `name` of a config; it is 1 where the config does not have the field."""
    return fields.number(name, SMALLEST, LARGEST, default=1.0)


def granite_shared(hidden: int, inner: int) -> Feed:
    """Returns the shared expert: the feed-forward block that every row goes through."""
    return Feed(hidden, inner, gate_up="shared_mlp.input_linear", down="shared_mlp.output_linear")


def granite_mixture(
    fields: Fields, hidden: int, inner: int, shared: int, banks: Stacks = BANKS, router: str = ROUTER
) -> Mixture:
    """Reads the mixture of experts. inner: the inner size of an expert. shared: the inner size of the shared expert, 0
    for none. router: the name of the router's product."""
    count = expert_count(fields, 8)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count, default=2), normalised=True)
    return Mixture(
        BankShape(count, hidden, inner),
        LinearRouter(router, count, rule),
        banks,
        shared=Shared(granite_shared(hidden, shared)) if shared else None,
    )
