"""PaddleOCR-VL as a tiny folder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import transformers
from PIL import Image
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

PADDLE_MARKS = ("<|IMAGE_PLACEHOLDER|>", "<|end|>", "<|start|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO|>")
PADDLE_SETTINGS: Given = {
    **{"size": {"shortest_edge": 4 * 16 * 16, "longest_edge": 20 * 16 * 16}, "patch_size": 8, "merge_size": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "temporal_patch_size": 1},
}


def paddleocr_vl() -> torch.nn.Module:
    """Learned places of 5 x 5 patches, fitted to each image."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    find = library(PADDLE_MARKS).token_to_id
    config = transformers.PaddleOCRVLConfig(
        text_config={**TEXT, "rope_parameters": turn, "head_dim": 16},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": 40, "patch_size": 8},
        },
        tie_word_embeddings=False,
        image_token_id=find(PADDLE_MARKS[0]),
        vision_start_token_id=find(PADDLE_MARKS[3]),
        vision_end_token_id=find(PADDLE_MARKS[4]),
        video_token_id=find(PADDLE_MARKS[5]),
    )
    config.architectures = ["PaddleOCRVLForConditionalGeneration"]
    return transformers.PaddleOCRVLForConditionalGeneration(config)


def paddle_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all images in reading order, and the grid of each."""
    found = PaddleOCRVLImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: found[name] for name in ("pixel_values", "image_grid_thw")}


def paddle_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = given["image_grid_thw"].prod(-1) // 4
    return [f"<|IMAGE_START|>{PADDLE_MARKS[0] * int(count)}<|IMAGE_END|>" for count in counts]


PADDLEOCR_VL = Family(
    *("paddleocr-vl", paddleocr_vl, PADDLE_MARKS, f"<|IMAGE_START|>{PADDLE_MARKS[0]}<|IMAGE_END|>"),
    *(PADDLE_SETTINGS, paddle_processed, paddle_texts, "mm_token_type_ids"),
)
