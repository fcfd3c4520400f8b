"""Mixtral: Mistral's decoder with eight experts in each layer, two of them for each token (Jiang et al. 2024)."""

from __future__ import annotations

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.read import read_parts, same_windows, sliding_window
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture
from twostroke.ops.products.route import RouteRule

SILENT = {"max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_theta": 1e6}
"""The defaults of transformers for this family alone."""
BANKS = EachExpert("block_sparse_moe.experts", gate="w1", up="w3", down_name="w2")


@architecture("MixtralForCausalLM", model_type="mixtral")
def mixtral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Mixtral. Every layer sees the last sliding_window positions. The weights of the experts that a token uses
    add up to one."""
    silu_only(fields)
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields, layers = parts.fields, parts.facts.num_layers
    if fields.value("sliding_window") == 0:
        raise fields.wrong("sliding_window", "A window of nothing has no meaning; null means no window.")
    windows = same_windows(fields, "mixtral", layers, sliding_window(fields, 0))
    count = fields.integer("num_local_experts", 1, MOST_EXPERTS, default=8)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count, default=2), normalised=True)
    block = Mixture(
        BankShape(count, parts.facts.hidden_size, parts.feed.inner_size),
        LinearRouter("block_sparse_moe.gate", count, rule),
        BANKS,
    )
    return pre_decoder(parts, parts.rope(), windows=windows, blocks=(mixture(block),) * layers)
