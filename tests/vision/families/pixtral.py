"""Pixtral's tower before three language models, as tiny folders: Mistral 3, LightOnOCR and Pixtral."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import transformers
from PIL import Image
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

PIXTRAL_MARKS = ("[IMG]", "<|end|>", "<|start|>", "[IMG_BREAK]", "[IMG_END]")
PIXTRAL_TOWER = {
    **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 2},
    **{"patch_size": 8, "image_size": 96, "hidden_act": "silu", "model_type": "pixtral"},
}


def mistral3() -> torch.nn.Module:
    """Four patches become one image row."""
    config = transformers.Mistral3Config(
        text_config={**TEXT, "model_type": "mistral", "sliding_window": None},
        vision_config=PIXTRAL_TOWER,
        image_token_index=library(PIXTRAL_MARKS).token_to_id("[IMG]"),
        tie_word_embeddings=False,
    )
    config.architectures = ["Mistral3ForConditionalGeneration"]
    return transformers.Mistral3ForConditionalGeneration(config)


def pixtral() -> torch.nn.Module:
    """Each patch becomes an image row."""
    config = transformers.LlavaConfig(
        text_config={**TEXT, "model_type": "mistral", "sliding_window": None},
        vision_config=PIXTRAL_TOWER,
        image_token_index=library(PIXTRAL_MARKS).token_to_id("[IMG]"),
        tie_word_embeddings=False,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    config.architectures = ["LlavaForConditionalGeneration"]
    return transformers.LlavaForConditionalGeneration(config)


LIGHTON_MARKS = ("<|image_pad|>", "<|end|>", "<|start|>", "<|vision_start|>", "<|vision_end|>")


def lighton_ocr() -> torch.nn.Module:
    """Four patches become one image row, before another language model, and there are no breaks between lines."""
    config = transformers.LightOnOcrConfig(
        text_config={**TEXT, "model_type": "qwen3", "head_dim": 16},
        vision_config=PIXTRAL_TOWER,
        image_token_id=library(LIGHTON_MARKS).token_to_id(LIGHTON_MARKS[0]),
        tie_word_embeddings=False,
    )
    config.architectures = ["LightOnOcrForConditionalGeneration"]
    return transformers.LightOnOcrForConditionalGeneration(config)


def lighton_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    return [LIGHTON_MARKS[0] * int(lines * columns) for lines, columns in given["image_sizes"] // 16]


def pixtral_process(unit: int) -> Callable[[Sequence[Image.Image], Given], Given]:
    """The images of one prompt, padded to one size, and the size of each. unit: the side of an image row."""

    def process(images: Sequence[Image.Image], settings: Given) -> Given:
        made = PixtralImageProcessorPil(**{**settings, "patch_size": {"height": unit, "width": unit}})
        found = made(images=list(images), return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "image_sizes": torch.as_tensor(found["image_sizes"])}

    return process


def pixtral_texts(unit: int) -> Callable[[Given], list[str]]:
    """Lines of image rows with breaks between them."""

    def texts(given: Given) -> list[str]:
        sizes = (given["image_sizes"] // unit).tolist()
        return ["[IMG_BREAK]".join(["[IMG]" * columns] * lines) + "[IMG_END]" for lines, columns in sizes]

    return texts


PIXTRAL_SETTINGS: Given = {"size": {"longest_edge": 60}, "image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]}


def _pixtral(name: str, judge: Callable[[], torch.nn.Module], unit: int) -> Family:
    process, texts = pixtral_process(unit), pixtral_texts(unit)
    return Family(name, judge, PIXTRAL_MARKS, "[IMG]", PIXTRAL_SETTINGS, process, texts)


PIXTRAL = (
    _pixtral("mistral3", mistral3, 16),
    Family(
        *("lighton-ocr", lighton_ocr, LIGHTON_MARKS, LIGHTON_MARKS[0]),
        *(PIXTRAL_SETTINGS, pixtral_process(16), lighton_texts),
    ),
    _pixtral("pixtral", pixtral, 8),
)
