"""Qwen3: the dense decoder with a norm on each head's q and k and heads of a size of their own (Qwen team 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.families.dense import dense_program
from twostroke.models.common.families.llama import Defaults, read_dense, upper_windows
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

DEFAULTS = Defaults(max_positions=32_768, kv_heads=32, sliding_window=4096, head_dim=128)


@architecture("Qwen3ForCausalLM", model_type="qwen3", other_types=("qwen3_vl_text",))
def qwen3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Head norms, attention_bias; windows as Qwen2."""
    facts, shape = read_dense(fields, DEFAULTS)
    window, usual = upper_windows(fields, DEFAULTS, facts.num_layers)
    biased = fields.boolean("attention_bias", False)
    windows = windows_by_layer(fields, facts.num_layers, window, usual)
    return facts, dense_program(replace(shape, qkv_bias=biased, output_bias=biased, head_norms=True, windows=windows))


@architecture("Qwen3VLForConditionalGeneration", model_type="qwen3_vl")
def qwen3_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Qwen3-VL: the language model of a checkpoint that also sees images."""
    return language_model(fields, "Qwen3ForCausalLM", {"max_position_embeddings": 128_000})
