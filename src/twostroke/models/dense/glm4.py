"""GLM-4: half of each head is rotated, in interleaved pairs; GLM-4-0414 has norms around blocks (GLM team 2024,
2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import RopeSpec

SILENT = defaults("glm4")


@architecture("GlmForCausalLM", model_type="glm")
def glm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM, which has Llama's order of norms."""
    parts, turn = _read(fields)
    return pre_decoder(parts, turn)


@architecture("Glm4ForCausalLM", model_type="glm4")
def glm4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-4-0414, which has a norm before and one after each block."""
    return _with_norms_after(*_read(fields))


@architecture(
    "Glm4vForConditionalGeneration", "Glm46VForConditionalGeneration", model_type="glm4v", other_types=("glm46v",)
)
def glm4_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-4.1V and GLM-4.6V-Flash: the language model of a checkpoint that also sees images."""
    return text_model(fields, Architecture("Glm4vText", "glm4v_text", _of_glm4v), defaults("glm4v_text"))


@architecture("GlmOcrForConditionalGeneration", model_type="glm_ocr")
def glm_ocr(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-OCR, whose language model is that of GLM-4.1V without biases."""
    return text_model(fields, Architecture("GlmOcrText", "glm_ocr_text", _of_glm_ocr), defaults("glm_ocr_text"))


def _of_glm4v(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    return _with_norms_after(*_read(fields, {}, 1.0))


def _of_glm_ocr(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    parts, turn = _read(fields, {}, 1.0)
    return _with_norms_after(replace(parts, heads=replace(parts.heads, qkv_bias=False)), turn)


def _with_norms_after(parts: Parts, turn: RopeSpec) -> tuple[CommonFacts, ProgramText]:
    norm = parts.norm

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        seen = attend(t, parts.heads, norm(t, "input_layernorm", x), turn=turn)
        x = add(x, norm(t, "post_self_attn_layernorm", seen, in_place=True))
        made = parts.feed(t, norm(t, "post_attention_layernorm", x))
        return add(x, norm(t, "post_mlp_layernorm", made, in_place=True))

    return parts.facts, decoder_program(parts.decoder, layer)


def _read(fields: Fields, silent: Mapping[str, object] = SILENT, partial: float = 0.5) -> tuple[Parts, RopeSpec]:
    """Reads the model's parts (attention, feed-forward block, decoder) and the rotation of its heads. silent: the
    defaults of absent fields. partial: the share of a head that is rotated where partial_rotary_factor is absent."""
    parts = read_parts(fields, silent, kv_absent=2)
    biased = parts.fields.boolean("attention_bias", True)
    turn = parts.rope(partial=partial)
    heads = replace(parts.heads, qkv_bias=biased, interleaved=True)
    return replace(parts, heads=heads, feed=replace(parts.feed, gate_up="mlp.gate_up_proj")), turn
