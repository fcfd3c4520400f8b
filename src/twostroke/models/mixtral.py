"""Mixtral: Mistral's decoder with eight experts in each layer, two of them for each token (Jiang et al. 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, mixture
from twostroke.models.common.families.dense import dense_program
from twostroke.models.common.families.llama import Defaults, read_dense, sliding_window
from twostroke.models.common.fields.fields import one_window, windows_by_layer
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.products.route import RouteRule
from twostroke.types.spec.fields import Fields

DEFAULTS = Defaults(max_positions=131_072, kv_heads=8)
SILENT = {"rms_norm_eps": 1e-5, "rope_theta": 1e6}
"""What transformers assumes for this family alone."""
BANKS = EachExpert("block_sparse_moe.experts", gate="w1", up="w3", down_name="w2")


@architecture("MixtralForCausalLM", model_type="mixtral")
def mixtral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """num_local_experts, num_experts_per_tok; sliding_window for every layer; weights that add up to one."""
    said = {name: value for name, value in fields.values.items() if value is not None or name not in SILENT}
    fields = fields.only({**SILENT, **said})
    facts, shape = read_dense(fields, DEFAULTS)
    if fields.value("sliding_window") == 0:
        raise fields.wrong("sliding_window", "A window of nothing has no meaning; null means no window.")
    window = sliding_window(fields, DEFAULTS)
    usual = (window,) * facts.num_layers
    named = windows_by_layer(fields, facts.num_layers, window, usual)
    count = fields.integer("num_local_experts", 1, MOST_EXPERTS, default=8)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count, default=2), normalised=True)
    block = Mixture(
        BankShape(count, shape.hidden_size, shape.intermediate_size),
        LinearRouter("block_sparse_moe.gate", count, rule),
        BANKS,
    )
    shape = replace(shape, windows=one_window(fields, "mixtral", named, usual))
    return facts, dense_program(shape, (mixture(block),) * facts.num_layers)
