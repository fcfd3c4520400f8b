"""LLaVA 1.5, NeXT and OneVision with the towers of CLIP and of SigLIP, as tiny folders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import transformers
from PIL import Image
from transformers import LlavaNextProcessor, LlavaOnevisionProcessor
from transformers.image_processing_utils import select_best_resolution
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

MARKS = ("<image>", "<|end|>", "<|start|>")
COLORS: Given = {"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]}
CROPPED = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True, **COLORS}
STRETCHED = {"size": {"height": 32, "width": 32}, "resample": 3, **COLORS}
SIZES = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 2}


def judge(kind: str, layer: int, strategy: str) -> torch.nn.Module:
    """layer: the layer whose rows become image rows, counted from the last."""
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
    """The rows of the layer before the last, without the row that is no patch."""
    return judge("clip_vision_model", -2, "default")


def siglip() -> torch.nn.Module:
    """The rows of the layer before the last."""
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


NEXT_GRIDS = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]
ONEVISION_GRIDS = [[32 * high, 32 * wide] for high in range(1, 4) for wide in range(1, 4)]
NEXT = {**CROPPED, "image_grid_pinpoints": NEXT_GRIDS}
ONEVISION = {**STRETCHED, "image_grid_pinpoints": ONEVISION_GRIDS}
MOST_TILES = 3
"""Lines of a grid with more tiles are shrunk."""


def llava_next(kind: str = "clip_vision_model") -> torch.nn.Module:
    """A grid of tiles after the whole image, and a row after each line."""
    config = transformers.LlavaNextConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config={**SIZES, "image_size": 32, "patch_size": 8, "model_type": kind},
        image_token_index=library(MARKS).token_to_id("<image>"),
        image_grid_pinpoints=NEXT_GRIDS,
        tie_word_embeddings=False,
        vision_feature_select_strategy="default" if kind == "clip_vision_model" else "full",
    )
    config.architectures = ["LlavaNextForConditionalGeneration"]
    return transformers.LlavaNextForConditionalGeneration(config)


def llava_next_siglip() -> torch.nn.Module:
    """The same with another tower."""
    return llava_next("siglip_vision_model")


def onevision() -> torch.nn.Module:
    """Long lines are shrunk. Of several images, each is one square."""
    config = transformers.LlavaOnevisionConfig(
        text_config={**TEXT, "model_type": "qwen2"},
        vision_config={**SIZES, "image_size": 32, "patch_size": 8, "model_type": "siglip_vision_model"},
        image_token_index=library(MARKS).token_to_id("<image>"),
        video_token_index=library((*MARKS, "<video>")).token_to_id("<video>"),
        image_grid_pinpoints=ONEVISION_GRIDS,
        vision_aspect_ratio=f"anyres_max_{MOST_TILES}",
        tie_word_embeddings=False,
    )
    config.architectures = ["LlavaOnevisionForConditionalGeneration"]
    return transformers.LlavaOnevisionForConditionalGeneration(config)


def next_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The whole of each image and its grid, and the sizes of the images."""
    made = LlavaNextImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: made[name] for name in ("pixel_values", "image_sizes")}


def onevision_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The same, where the images of one prompt are processed together."""
    made = LlavaOnevisionImageProcessorPil(**settings)(images=[list(images)], return_tensors="pt")
    return {name: made[name] for name in ("pixel_values", "image_sizes", "batch_num_images")}


def next_texts(given: Given) -> list[str]:
    """The placeholders, of which the judge gives the number."""
    counted = _processor(LlavaNextProcessor, LlavaNextImageProcessorPil(**NEXT), patch_size=8)
    counts = [counted._get_number_of_features(*map(int, size), 32, 32) for size in given["image_sizes"]]
    return ["<image>" * count for count in counts]


def onevision_texts(given: Given) -> list[str]:
    """The placeholders, of which the judge gives the number."""
    counted = _processor(
        LlavaOnevisionProcessor,
        LlavaOnevisionImageProcessorPil(**ONEVISION),
        num_image_tokens=16,
        vision_aspect_ratio=f"anyres_max_{MOST_TILES}",
    )
    if len(given["image_sizes"]) > 1:
        return ["<image>" * 17] * len(given["image_sizes"])
    return ["<image>" * counted._get_number_of_features(*map(int, given["image_sizes"][0]), 32, 32)]


def _processor(kind: type, images: object, **fields: object) -> object:
    """A processor without a tokenizer, which is not needed to count rows."""
    made = kind.__new__(kind)
    made.image_processor = images
    made.num_additional_image_tokens = 0
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def tiles_of_next(given: Given) -> list[torch.Tensor]:
    """The whole image, and the grid put together from its squares."""
    squares = given["pixel_values"][0]
    size = [int(each) for each in given["image_sizes"][0]]
    grids = NEXT_GRIDS if "batch_num_images" not in given else ONEVISION_GRIDS
    high, wide = select_best_resolution(size, grids)
    down, across = high // 32, wide // 32
    grid = squares[1:].reshape(down, across, 3, 32, 32).permute(2, 0, 3, 1, 4).reshape(1, 3, high, wide)
    return [squares[:1], grid]


LLAVA = (
    Family("llava-next", llava_next, MARKS, "<image>", NEXT, next_processed, next_texts, pixels=tiles_of_next),
    Family(
        *("llava-next-siglip", llava_next_siglip, MARKS, "<image>", NEXT, next_processed, next_texts),
        pixels=tiles_of_next,
    ),
    Family(
        *("llava-onevision", onevision, (*MARKS, "<video>"), "<image>", ONEVISION, onevision_processed),
        *(onevision_texts,),
        pixels=tiles_of_next,
    ),
    Family("llava-clip", clip, MARKS, "<image>", CROPPED, cropped, texts),
    Family("llava-siglip", siglip, MARKS, "<image>", STRETCHED, stretched, texts),
)
