"""Llama 4 as a tiny folder. Its judge's processor needs torchvision; here its grids and colours come without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.image_utils import SizeDict

from tests.vision.families.family import TEXT, Family, Given, library
from tests.vision.files.by_pillow import ByPillow, judge_module, pixels_of

judges: Any = judge_module("llama4.image_processing_llama4")
writers: Any = judge_module("llama4.processing_llama4")
FIT = judges.get_best_fit

LLAMA4_MARKS = (
    *("<|patch|>", "<|end|>", "<|start|>", "<|image|>", "<|image_start|>", "<|image_end|>"),
    *("<|tile_x_separator|>", "<|tile_y_separator|>"),
)
LLAMA4_SETTINGS: Given = {
    **{"size": {"height": 32, "width": 32}, "max_patches": 4, "resample": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]},
}


def llama4(chunk: int = 20, **more: Any) -> torch.nn.Module:
    """Heads of the tower have 24 elements. chunk: the positions of a chunk of the language model. more: further fields
    of it."""
    text = {
        **{"head_dim": 24, "num_local_experts": 6, "intermediate_size": 40, "floor_scale": 8, "attn_scale": 0.3},
        **{"intermediate_size_mlp": 72, "interleave_moe_layer_step": 2, "attention_chunk_size": chunk},
    }
    config = transformers.Llama4Config(
        text_config={**TEXT, **text, **more},
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


def judged_sizes(width: int, height: int, settings: Given) -> list[int]:
    """Rows and columns of the judge's grid, and the height and width to which it resizes the image."""
    asked: list[list[int]] = []

    class Asked(Exception):
        pass

    class Asks(Llama4ByPillow):
        def resize(self, image: Any, size: Any, **more: Any) -> Any:
            asked.append([size.height, size.width])
            raise Asked

    grids: list[Any] = []

    def fit(*given: Any, **more: Any) -> Any:
        grids.append(FIT(*given, **more))
        return grids[-1]

    asks = {"max_patches": 16, "resize_to_max_canvas": False, "do_resize": True, "rescale_factor": 1 / 255, **settings}
    asks |= {"size": SizeDict(height=336, width=336), "resample": 2, "do_rescale": False, "do_normalize": False}
    judges.find_supported_resolutions.cache_clear()
    with mock.patch.object(judges, "get_best_fit", fit), pytest.raises(Asked):
        empty = torch.zeros(3, 1, 1, dtype=torch.uint8).expand(3, height, width)
        Asks()._preprocess([empty], **asks, image_mean=None, image_std=None, disable_grouping=True, return_tensors=None)
    return [*(int(side) // 336 for side in grids[0]), *map(int, asked[0])]


def judged_values(settings: Given) -> np.ndarray:
    """The judge's numbers (256, 3) for each byte of each colour."""
    usual = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    usual |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **settings}
    pixels = torch.arange(256, dtype=torch.uint8).repeat(3, 1)[None, :, None]
    if not usual["do_rescale"]:
        pixels = pixels.float()
    return Llama4ByPillow().rescale_and_normalize(pixels, **usual)[0, :, 0].float().T.numpy()  # type: ignore[no-any-return]


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


def llama4_usual() -> torch.nn.Module:
    """Fields for which files of GGUF have no key have the published values."""
    return llama4(8192, floor_scale=8192, attn_scale=0.1)


def _llama4(name: str, judge: Callable[[], torch.nn.Module], pool: str, **settings: Any) -> Family:
    return Family(
        *(name, judge, LLAMA4_MARKS, "<|image|>", {**LLAMA4_SETTINGS, **settings}, llama4_processed, llama4_texts),
        pool=pool,
        pixels=lambda given: given["pixel_values"].split(1),
        unread=("aspect_ratios",),
        features=llama4_features,
        rounded=True,
    )


LLAMA4_USUAL = _llama4("llama4-usual", llama4_usual, "")
LLAMA4 = (
    _llama4("llama4", llama4, ""),
    _llama4("llama4-wide", llama4_wide, "280KB", resize_to_max_canvas=True, max_patches=3),
)
