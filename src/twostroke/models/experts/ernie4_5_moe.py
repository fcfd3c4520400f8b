"""ERNIE 4.5 MoE: interleaved rotary pairs, experts chosen by a softmax plus a bias, shared experts (Baidu 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, listed_blocks, named_feed
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.types.spec.rope import RopeSpec

RESAMPLER = ("model.resampler_model.", "resampler_model.")
CORRECTION = "mlp.moe_statics.e_score_correction_bias"


@architecture("Ernie4_5_MoeForCausalLM", model_type="ernie4_5_moe")
def ernie4_5_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ERNIE 4.5 MoE. From layer moe_layer_start_index to layer moe_layer_end_index (-1: the last), every
    moe_layer_interval-th layer has experts."""
    silu_only(fields)
    refuse_setting(fields, "use_bias", "Products with biases are not implemented in this family.")
    parts, turn = _parts(fields)
    fields, layers = parts.fields, parts.facts.num_layers
    first, step = fields.integer("moe_layer_start_index", 0, 4096, default=1), _interval(fields)
    last = fields.integer("moe_layer_end_index", -1, 4096, default=-1)
    last = layers - 1 if last == -1 else last
    block = mixture(_mixture(fields, parts.facts.hidden_size))
    sparse = [first <= index <= last and (index + 1) % step == 0 for index in range(layers)]
    return pre_decoder(parts, turn, blocks=[block if each else None for each in sparse])


@architecture(
    "Ernie4_5_VLMoeForConditionalGeneration",
    "Ernie4_5_VL_MoeForConditionalGeneration",
    model_type="ernie4_5_vl_moe",
)
def ernie4_5_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also sees images, with the experts that rows of text use."""
    return text_model(fields, Architecture("Ernie4_5_VLText", "ernie4_5_vl_moe_text", _of_vl))


def _of_vl(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also sees images. moe_intermediate_size: the inner size of an
    expert for text, then that of an expert for images. Both kinds have equally many experts, in one list of tensors.
    mlp_layer_types defines which layers have experts."""
    silu_only(fields)
    refuse_setting(fields, "use_bias", "Products with biases are not implemented in this family.")
    sizes = fields.integers("moe_intermediate_size") or (1536, 512)
    fields = fields.changed({"moe_intermediate_size": sizes[0]})
    parts, turn = _parts(fields)
    fields, layers, count = parts.fields, parts.facts.num_layers, expert_count(parts.fields)
    router = replace(_router(fields, count), choice_shape=(2, count), transposed=True)
    block = mixture(replace(_mixture(fields, parts.facts.hidden_size), router=router))
    blocks = listed_blocks(fields, block, layers, 1)
    unread = []
    for index in (index for index in range(layers) if blocks[index]):
        begin = f"model.layers.{index}.mlp."
        unread += [f"{begin}gate.weight_1", *(f"{begin}experts.{count + each}." for each in range(count))]
    facts = replace(parts.facts, ignored=(*parts.facts.ignored, *unread, *RESAMPLER))
    return pre_decoder(replace(parts, facts=facts), turn, blocks=blocks)


def _parts(fields: Fields) -> tuple[Parts, RopeSpec]:
    parts = read_parts(fields, defaults("ernie4_5_moe"), kv_absent=4)
    heads = replace(parts.heads, interleaved=True)
    parts = replace(parts, heads=heads)
    return parts, parts.rope(theta=500_000.0)


def _interval(fields: Fields) -> int:
    return fields.integer("moe_layer_interval", 1, 4096, default=1)


def _mixture(fields: Fields, hidden: int) -> Mixture:
    count = expert_count(fields)
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    shared = fields.integer("moe_num_shared_experts", 0, MOST_EXPERTS)
    feed = named_feed(hidden, shared * inner, "mlp.shared_experts")
    return Mixture(
        BankShape(count, hidden, inner),
        _router(fields, count),
        EachExpert("mlp.experts"),
        shared=Shared(feed) if shared else None,
    )


def _router(fields: Fields, count: int) -> LinearRouter:
    least = fields.number("moe_norm_min", 0.0, 1.0, default=1e-12)
    rule = RouteRule(fields.integer("moe_k", 1, count), normalised=True, least=least)
    return LinearRouter("mlp.gate", count, rule, choice_bias=CORRECTION, choice_shape=(1, count))
