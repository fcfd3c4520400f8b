"""Qwen3-MoE: Qwen3's decoder with many small experts in place of most feed-forward blocks (Qwen team 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import Banks, BankShape, EachExpert, Stacks
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.nested import language_model_of_thinker, text_model
from twostroke.models.common.fields.read import read_parts, same_windows, sliding_window
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.types.errors import UnsupportedModel

BANKS = EachExpert("mlp.experts")
STACKS = Stacks("mlp.experts.gate_up_proj", "mlp.experts.down_proj", transposed=True)
VL_SILENT = {**defaults("qwen3_vl_moe_text"), "norm_topk_prob": True, "head_dim": None}
OMNI_SILENT = {"max_position_embeddings": 32_768, "norm_topk_prob": True, "head_dim": None}
"""The defaults for fields that config.json does not have."""


@architecture("Qwen3MoeForCausalLM", model_type="qwen3_moe", other_types=("qwen3_omni_moe_text",))
def qwen3_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3-MoE. Heads of q and k have norms; the config may set attention_bias. All layers have the same window,
    or none. The config decides which layers have experts, and how many."""
    return _read(fields, BANKS)


@architecture("Qwen3VLMoeForConditionalGeneration", model_type="qwen3_vl_moe")
def qwen3_moe_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3-VL-MoE: the language model of a checkpoint that also sees images. Its experts lie in stacks."""
    return text_model(fields, Architecture("Qwen3VLMoeText", "qwen3_vl_moe_text", _with_stacks), VL_SILENT)


@architecture(
    "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3OmniMoeThinkerForConditionalGeneration",
    model_type="qwen3_omni_moe",
    other_types=("qwen3_omni_moe_thinker",),
)
def qwen3_moe_omni(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the part of Qwen3-Omni that writes text. The checkpoint also has parts for images, sounds and speech."""
    return language_model_of_thinker(fields, "Qwen3MoeForCausalLM", OMNI_SILENT)


def _with_stacks(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    if not fields.boolean("norm_topk_prob", True):
        raise UnsupportedModel(
            f"{fields.place}: norm_topk_prob is false in a qwen3_vl_moe model.",
            why="transformers divides the weights of experts by their sum whatever this field says.",
            fix="Write true, as all published models have it.",
        )
    return _read(fields, STACKS, 60)


def _read(fields: Fields, banks: Banks, usual_experts: int = 128) -> tuple[CommonFacts, ProgramText]:
    """Returns facts and program. usual_experts: the number of experts where the config does not have the field."""
    silu_only(fields)
    parts = read_parts(fields, defaults("qwen3_moe"), kv_absent=4)
    parts = replace(parts, heads=replace(parts.biased_heads(), head_norm=parts.norm))
    layers, window = parts.facts.num_layers, sliding_window(fields, 4096)
    windows = same_windows(fields, "qwen3_moe", layers, window if fields.boolean("use_sliding_window", False) else 0)
    count = _experts(fields, usual_experts)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count, default=8), fields.boolean("norm_topk_prob", False)
    )
    inner = fields.integer("moe_intermediate_size", 1, 1 << 20, default=768)
    router, shape = LinearRouter("mlp.gate", count, rule), BankShape(count, parts.facts.hidden_size, inner)
    block = mixture(Mixture(shape, router, banks))
    step, dense = fields.integer("decoder_sparse_step", 1, 4096, default=1), set(fields.integers("mlp_only_layers"))
    blocks = [block if layer not in dense and (layer + 1) % step == 0 else None for layer in range(layers)]
    return pre_decoder(parts, parts.rope(), windows=windows, blocks=blocks)


def _experts(fields: Fields, usual: int) -> int:
    """Reads num_experts, which transformers 5 writes as num_local_experts."""
    absent = fields.optional_integer("num_local_experts", 1, MOST_EXPERTS)
    count = fields.integer("num_experts", 1, MOST_EXPERTS, default=absent or usual)
    if absent not in (None, count):
        raise fields.wrong("num_experts", f"num_local_experts is {absent}: both mean the same number.")
    return count
