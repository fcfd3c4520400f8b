"""Llama 2 and 3 and all models whose config names the Llama architecture: the dense decoder as it is (Touvron et al.
2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import one_window, silu_only, windows_by_layer, with_silent
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture
from twostroke.types.spec.rope import MAX_POSITIONS

EMU3 = {
    **{"vocab_size": 184_622, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 9216, "rms_norm_eps": 1e-5},
    **{"rope_theta": 1_000_000.0, "bos_token_id": 151_849, "eos_token_id": 151_850},
}
"""The defaults of Emu3 for fields that its config does not have."""


@architecture("LlamaForCausalLM", model_type="llama")
def llama(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Llama, whose config may set attention_bias and mlp_bias. Every layer sees all earlier positions."""
    silu_only(fields)
    parts = read_parts(fields, {})
    fields, usual = parts.fields, (0,) * parts.facts.num_layers
    window = fields.optional_integer("sliding_window", 0, MAX_POSITIONS) or 1
    named = windows_by_layer(fields, len(usual), window, usual)
    parts = replace(parts, heads=parts.biased_heads(), feed=parts.biased_feed())
    return pre_decoder(parts, parts.rope(), windows=one_window(fields, "llama", named, usual))


@architecture("Emu3ForCausalLM", model_type="emu3_text_model")
def emu3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Emu3, which is Llama with tokens of images in its vocabulary (BAAI 2024)."""
    return llama(with_silent(fields, EMU3))


@architecture("Emu3ForConditionalGeneration", model_type="emu3")
def emu3_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also turns images into tokens, and tokens into images."""
    return language_model(fields, "Emu3ForCausalLM")
