"""Hunyuan-A13B: Hunyuan's attention, and experts next to a block that every row goes through (Tencent 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import expert_count, named_feed
from twostroke.models.dense.hunyuan import read_hunyuan
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture
from twostroke.ops.products.route import RouteRule

BY_LAYER = ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")
"""Fields that may list a number for each layer."""


@architecture("HunYuanMoEV1ForCausalLM", model_type="hunyuan_v1_moe")
def hunyuan_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Hunyuan-A13B. Every layer has experts and one shared block of the same width."""
    fields = _one_for_all(fields)
    refuse_setting(fields, "use_cla", "Keys and values that several layers share are not implemented.")
    refuse_setting(fields, "moe_layer_num_skipped", "transformers has experts in every layer of this family.")
    silu_only(fields)
    parts, turn = read_hunyuan(fields)
    hidden, inner = parts.facts.hidden_size, parts.feed.inner_size
    for name, only in (("num_shared_expert", 1), ("moe_intermediate_size", inner)):
        if fields.value(name, only) not in (only, None):
            raise fields.wrong(name, f"Only {only} is implemented, in transformers too.")
    count = expert_count(fields)
    rule = RouteRule(fields.integer("moe_topk", 1, count, default=1), normalised=True)
    shared = Shared(named_feed(hidden, inner, "mlp.shared_mlp"))
    router = LinearRouter("mlp.gate.wg", count, rule)
    block = mixture(Mixture(BankShape(count, hidden, inner), router, EachExpert("mlp.experts"), shared=shared))
    return pre_decoder(parts, turn, blocks=(block,) * parts.facts.num_layers)


def _one_for_all(fields: Fields) -> Fields:
    """Returns the fields, where a list of equal numbers is replaced by that number. Raises CorruptModel for other
    lists."""
    values = dict(fields.values)
    for name in BY_LAYER:
        found = values.get(name)
        if isinstance(found, list):
            if not found or any(each != found[0] for each in found):
                raise fields.wrong(name, "Layers of this family are all the same here.")
            values[name] = found[0]
    return fields.only(values)
