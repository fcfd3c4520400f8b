"""Llama 4 as a tiny folder. Its judge's processor needs torchvision; here its grids and colours come without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.image_utils import SizeDict

from tests.vision.by_pillow import ByPillow, judge_module, pixels_of
from tests.vision.family import TEXT, Family, Given, library

judges: Any = judge_module("llama4.image_processing_llama4")
writers: Any = judge_module("llama4.processing_llama4")

LLAMA4_MARKS = (
    *("<|patch|>", "<|end|>", "<|start|>", "<|image|>", "<|image_start|>", "<|image_end|>"),
    *("<|tile_x_separator|>", "<|tile_y_separator|>"),
)
LLAMA4_SETTINGS: Given = {
    **{"size": {"height": 32, "width": 32}, "max_patches": 4, "resample": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]},
}


def llama4(chunk: int = 20) -> torch.nn.Module:
    """Heads of the tower have 24 elements. chunk: the positions of a chunk of the language model."""
    text = {
        **{"head_dim": 24, "num_local_experts": 6, "intermediate_size": 40, "floor_scale": 8, "attn_scale": 0.3},
        **{"intermediate_size_mlp": 72, "interleave_moe_layer_step": 2, "attention_chunk_size": chunk},
    }
    config = transformers.Llama4Config(
        text_config={**TEXT, **text},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": 32, "patch_size": 8, "vision_output_dim": 40, "projector_input_dim": 40},
            "projector_output_dim": 40,
        },
        image_token_index=library(LLAMA4_MARKS).token_to_id(LLAMA4_MARKS[0]),
        boi_token_index=library(LLAMA4_MARKS).token_to_id("<|image_start|>"),
        eoi_token_index=library(LLAMA4_MARKS).token_to_id("<|image_end|>"),
    )
    config.architectures = ["Llama4ForConditionalGeneration"]
    return transformers.Llama4ForConditionalGeneration(config)


class Llama4ByPillow(judges.Llama4ImageProcessor, ByPillow):  # type: ignore[misc, name-defined]
    """The judge's grids and colours, with Pillow."""

    def __init__(self) -> None:
        """Makes the processor without torchvision."""


def llama4_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """All tiles of all images, in the type of the tests' model. The grid of each image comes with them, for texts
    alone."""
    found = llama4_tiles(images, {"do_rescale": True, "do_normalize": True, **settings})
    return {
        "pixel_values": torch.cat([tiles.float() for tiles in found["pixel_values"]]),
        "aspect_ratios": found["aspect_ratios"],
    }


def llama4_tiles(images: Sequence[Image.Image], settings: Given) -> Given:
    """The judge's results: the tiles of each image, and rows and columns of its grid."""
    usual = {"resize_to_max_canvas": False, "do_resize": True, "rescale_factor": 1 / 255, "disable_grouping": True}
    asked = {**usual, **settings, "size": SizeDict(**settings["size"]), "return_tensors": None}
    judges.find_supported_resolutions.cache_clear()
    return Llama4ByPillow()._preprocess([pixels_of(image) for image in images], **asked)  # type: ignore[no-any-return]


def llama4_texts(given: Given) -> list[str]:
    """The marks that the judge's processor writes."""
    write = writers.Llama4Processor._prompt_split_image
    return [write(None, [int(side) for side in grid], 4) for grid in given["aspect_ratios"]]


def llama4_features(judge: Any, given: Given) -> Any:
    """The image rows after the product that the judge keeps outside of its tower."""
    found = judge.get_image_features(**given)
    found.last_hidden_state = judge.multi_modal_projector(found.last_hidden_state)
    return found


def llama4_wide() -> torch.nn.Module:
    """Chunks are longer than most prompts."""
    return llama4(100)


def _llama4(name: str, judge: Callable[[], torch.nn.Module], pool: str, **settings: Any) -> Family:
    return Family(
        *(name, judge, LLAMA4_MARKS, "<|image|>", {**LLAMA4_SETTINGS, **settings}, llama4_processed, llama4_texts),
        pool=pool,
        pixels=lambda given: given["pixel_values"].split(1),
        unread=("aspect_ratios",),
        features=llama4_features,
        rounded=True,
    )


LLAMA4 = (
    _llama4("llama4", llama4, ""),
    _llama4("llama4-wide", llama4_wide, "280KB", resize_to_max_canvas=True, max_patches=3),
)
