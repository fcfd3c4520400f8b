"""InternVL as tiny folders, with its small and its large tower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

INTERNVL_MARKS = ("<IMG_CONTEXT>", "<|end|>", "<|start|>", "<img>", "</img>", "<video>")
INTERNVL_SETTINGS: Given = {
    **{"size": {"height": 32, "width": 32}, "crop_to_patches": True, "max_patches": 5},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]},
}


def internvl(**tower: Any) -> torch.nn.Module:
    """The tower has layer norms, and products of q, k and v with biases."""
    config = transformers.InternVLConfig(
        text_config={**TEXT, "model_type": "qwen2", "sliding_window": None},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": [32, 32], "patch_size": [8, 8], "attention_bias": True, **tower},
        },
        image_token_id=library(INTERNVL_MARKS).token_to_id(INTERNVL_MARKS[0]),
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    config.architectures = ["InternVLForConditionalGeneration"]
    return transformers.InternVLForConditionalGeneration(config)


def internvl_large() -> torch.nn.Module:
    """As in the tower with 6B parameters, there are RMS norms, also of the whole of q and of k."""
    return internvl(norm_type="rms_norm", use_qk_norm=True, attention_bias=False)


def internvl_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """All tiles of all images. The number of tiles of each image comes with them, for texts alone."""
    found = GotOcr2ImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: found[name] for name in ("pixel_values", "num_patches")}


def internvl_texts(given: Given) -> list[str]:
    """Four placeholders for each tile."""
    return [f"<img>{INTERNVL_MARKS[0] * 4 * int(count)}</img>" for count in given["num_patches"]]


def _internvl(name: str, judge: Callable[[], torch.nn.Module]) -> Family:
    process, texts = internvl_processed, internvl_texts
    return Family(
        *(name, judge, INTERNVL_MARKS, INTERNVL_MARKS[0], INTERNVL_SETTINGS, process, texts),
        pixels=lambda given: given["pixel_values"].split(1),
        unread=("num_patches",),
    )


INTERNVL = (_internvl("internvl", internvl), _internvl("internvl-large", internvl_large))
