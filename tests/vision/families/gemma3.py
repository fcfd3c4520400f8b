"""Gemma 3 as tiny folders, with windows of several lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import transformers
from msgspec import structs
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

GEMMA_MARKS = ("<image_soft_token>", "<|end|>", "<|start|>", "<start_of_image>", "<end_of_image>")
GEMMA_SETTINGS: Given = {
    **{"size": {"height": 32, "width": 32}, "resample": 2, "image_mean": [0.5, 0.4, 0.6]},
    "image_std": [0.5, 0.3, 0.7],
}


def gemma3_wide() -> torch.nn.Module:
    """The window is longer than most prompts."""
    return gemma3(100)


def gemma3_sliding() -> torch.nn.Module:
    """The layers are as in GGUF files, where the last one of six layers has no window."""
    return gemma3(12, ["sliding_attention"] * 4)


def gemma3(window: int = 12, kinds: Sequence[str] = ("sliding_attention", "full_attention") * 2) -> torch.nn.Module:
    """The window is shorter than an image, and every second layer sees everything."""
    find = library(GEMMA_MARKS).token_to_id
    config = transformers.Gemma3Config(
        text_config={
            **TEXT,
            **{"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": window, "layer_types": list(kinds)},
        },
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": 32, "patch_size": 4, "model_type": "siglip_vision_model"},
        },
        mm_tokens_per_image=16,
        boi_token_index=find("<start_of_image>"),
        eoi_token_index=find("<end_of_image>"),
        image_token_index=find("<image_soft_token>"),
    )
    config.architectures = ["Gemma3ForConditionalGeneration"]
    return transformers.Gemma3ForConditionalGeneration(config)


def gemma3_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """One tile for each image."""
    found = Gemma3ImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {"pixel_values": found["pixel_values"]}


def gemma3_texts(given: Given) -> list[str]:
    """The marks that the processor writes."""
    rows = "<image_soft_token>" * 16
    return [f"\n\n<start_of_image>{rows}<end_of_image>\n\n"] * len(given["pixel_values"])


def _gemma(name: str, judge: Callable[[], torch.nn.Module], pool: str) -> Family:
    process, texts, mark = gemma3_processed, gemma3_texts, GEMMA_MARKS[3]
    return Family(name, judge, GEMMA_MARKS, mark, GEMMA_SETTINGS, process, texts, "token_type_ids", pool)


GEMMA3 = (_gemma("gemma3", gemma3, ""), _gemma("gemma3-wide", gemma3_wide, "280KB"))
GEMMA3_SLIDING = structs.replace(GEMMA3[0], judge=gemma3_sliding)
