"""Llama 2 and 3 and everything that calls itself Llama: the dense decoder as it is (Touvron et al. 2023)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.families.dense import dense_program
from twostroke.models.common.families.llama import Defaults, read_dense
from twostroke.models.common.fields.fields import one_window, windows_by_layer, with_silent
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import MAX_POSITIONS

DEFAULTS = Defaults(max_positions=2048)
EMU3 = {
    **{"vocab_size": 184_622, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 9216, "rms_norm_eps": 1e-5},
    **{"rope_theta": 1_000_000.0, "bos_token_id": 151_849, "eos_token_id": 151_850},
}
"""What Emu3 has where its config does not have the field."""


@architecture("LlamaForCausalLM", model_type="llama")
def llama(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """attention_bias and mlp_bias; every layer sees everything."""
    facts, shape = read_dense(fields, DEFAULTS)
    biased = fields.boolean("attention_bias", False)
    window = fields.optional_integer("sliding_window", 0, MAX_POSITIONS) or 1
    named = windows_by_layer(fields, facts.num_layers, window, shape.windows)
    return facts, dense_program(
        replace(
            shape,
            qkv_bias=biased,
            output_bias=biased,
            mlp_bias=fields.boolean("mlp_bias", False),
            windows=one_window(fields, "llama", named, shape.windows),
        )
    )


@architecture("Emu3ForCausalLM", model_type="emu3_text_model")
def emu3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Llama with tokens of images in its vocabulary (BAAI 2024)."""
    return llama(with_silent(fields, EMU3))


@architecture("Emu3ForConditionalGeneration", model_type="emu3")
def emu3_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The language model of a checkpoint that also makes tokens of images, and images of tokens."""
    return language_model(fields, "Emu3ForCausalLM")
