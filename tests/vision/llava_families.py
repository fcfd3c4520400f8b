"""LLaVA 1.5 with the tower of CLIP and with that of SigLIP, as tiny folders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tests.vision.family import TEXT, Family, Given, library

MARKS = ("<image>", "<|end|>", "<|start|>")
COLORS: Given = {"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]}
CROPPED = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True, **COLORS}
STRETCHED = {"size": {"height": 32, "width": 32}, "resample": 3, **COLORS}
SIZES = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 2}


def judge(kind: str, layer: int, strategy: str) -> torch.nn.Module:
    """layer: whose rows become image rows, counted from the last."""
    config = transformers.LlavaConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config={**SIZES, "image_size": 32, "patch_size": 8, "model_type": kind},
        image_token_index=library(MARKS).token_to_id("<image>"),
        tie_word_embeddings=False,
        vision_feature_layer=layer,
        vision_feature_select_strategy=strategy,
    )
    config.architectures = ["LlavaForConditionalGeneration"]
    return transformers.LlavaForConditionalGeneration(config)


def clip() -> torch.nn.Module:
    """Rows of the layer before the last, without the row that is no patch."""
    return judge("clip_vision_model", -2, "default")


def siglip() -> torch.nn.Module:
    """Rows of the layer before the last."""
    return judge("siglip_vision_model", -2, "full")


def cropped(images: Sequence[Image.Image], settings: Given) -> Given:
    """The middle of each image."""
    return {"pixel_values": CLIPImageProcessorPil(**settings)(images=list(images), return_tensors="pt")["pixel_values"]}


def stretched(images: Sequence[Image.Image], settings: Given) -> Given:
    """Each image as a square."""
    made = SiglipImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {"pixel_values": made["pixel_values"]}


def texts(given: Given) -> list[str]:
    """A placeholder for each of 16 patches."""
    return ["<image>" * 16] * len(given["pixel_values"])


LLAVA = (
    Family("llava-clip", clip, MARKS, "<image>", CROPPED, cropped, texts),
    Family("llava-siglip", siglip, MARKS, "<image>", STRETCHED, stretched, texts),
)
