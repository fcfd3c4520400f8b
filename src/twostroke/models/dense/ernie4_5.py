"""ERNIE 4.5: Llama with interleaved rotary pairs (Baidu 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.nested import text_model_or_flat
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("Ernie4_5ForCausalLM", model_type="ernie4_5")
def ernie4_5(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ERNIE 4.5. use_bias: whether the products of layers have biases."""
    return _read(fields, interleaved=True)


@architecture("PaddleOCRVLForConditionalGeneration", model_type="paddleocr_vl")
def paddle_ocr(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of PaddleOCR-VL, whose checkpoints also have an image encoder. Unlike in ERNIE 4.5,
    rotary pairs are elements of the two halves of a head."""
    return text_model_or_flat(fields, Architecture("PaddleOCRText", "paddleocr_vl_text", _of_paddle))


def _of_paddle(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    return _read(fields, interleaved=False)


def _read(fields: Fields, *, interleaved: bool) -> tuple[CommonFacts, ProgramText]:
    parts = read_parts(fields, defaults("ernie4_5"), kv_absent=2)
    biased = parts.fields.boolean("use_bias", False)
    turn = parts.rope(theta=500_000.0)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=biased, interleaved=interleaved)
    parts = replace(parts, heads=heads, feed=replace(parts.feed, bias=biased))
    return pre_decoder(parts, turn)
