"""MiniCPM-V 4.6 as tiny folders: patches become fewer rows in the middle of the tower, or not. MiniCPM-OCR, whose
processor in transformers needs torchvision; here its sizes and grids come without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMV4_6Processor

from tests.vision.families.family import TEXT, Family, Given, library
from tests.vision.files.by_pillow import ByPillow, judge_module, pixels_of

ocr: Any = judge_module("minicpm_ocr.image_processing_minicpm_ocr")

MARKS = (
    *("<|image_pad|>", "<|end|>", "<|start|>", "<image>", "</image>", "<slice>", "</slice>"),
    *("<image_id>", "</image_id>"),
)
NAMES = ("image_start", "image_end", "slice_start", "slice_end", "image_id_start", "image_id_end")
"""The names of tokens in transformers, in the order of MARKS from the fourth on."""
PATCH = 4
IDS = ("image_start_id", "image_end_id", "slice_start_id", "slice_end_id", "newline_id")
SETTINGS: Given = {
    **{"patch_size": PATCH, "scale_resolution": 32, "max_slice_nums": 5, "use_image_id": True},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]},
}
TURN = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
SIZES: Given = {
    **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 2},
    **{"image_size": 5 * PATCH, "patch_size": PATCH},
}


def minicpm_v(name: str = "MiniCPMV4_6", **more: Any) -> torch.nn.Module:
    """Learned places of 5 x 5 patches, of which each patch takes the nearest one."""
    text = {
        **{**TEXT, "head_dim": 32, "rope_parameters": {**TURN, "partial_rotary_factor": 0.5}},
        **{"full_attention_interval": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
        **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
    }
    names = (*MARKS[3:7], "\u010a")
    ids = dict(zip(IDS, map(library(MARKS).token_to_id, names), strict=True)) if name == "MiniCPMV4_7" else {}
    config = getattr(transformers, f"{name}Config")(
        text_config=text,
        vision_config=SIZES,
        insert_layer_id=1,
        image_token_id=library(MARKS).token_to_id(MARKS[0]),
        tie_word_embeddings=False,
        **ids,
        **more,
    )
    config.architectures = [f"{name}ForConditionalGeneration"]
    made: torch.nn.Module = getattr(transformers, config.architectures[0])(config)
    return made


def processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all tiles in one row, the grid of patches of each tile, and what the texts need."""
    found = MiniCPMV4_6ImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    made = {name: found[name] for name in ("pixel_values", "target_sizes", "grids", "num_patches_per_image")}
    return {**made, "divisor": 4 if settings.get("downsample_mode") == "4x" else 16}


class OcrByPillow(ocr.MiniCPMOcrImageProcessor, ByPillow):  # type: ignore[misc, name-defined]
    """The judge's sizes and grids, with Pillow."""

    def __init__(self) -> None:
        """Makes the processor without torchvision."""

    def resize(self, image: torch.Tensor, size: Any, resample: Any = None, **more: Any) -> torch.Tensor:
        """See TorchvisionBackend."""
        return super().resize(image[None], size, resample)[0]

    def rescale_and_normalize(self, images: torch.Tensor, *given: Any) -> torch.Tensor:
        """See TorchvisionBackend."""
        mean, std = (torch.tensor(each)[:, None, None] for each in given[3:])
        return (images * given[1] - mean) / std


def processed_by_ocr(images: Sequence[Image.Image], settings: Given) -> Given:
    """The same as `processed`, by the processor of MiniCPM-OCR."""
    asked = {name: settings[name] for name in ("patch_size", "scale_resolution", "max_slice_nums")}
    asked |= {name: settings[name] for name in ("image_mean", "image_std", "small_image_upsize")}
    usual = {"resample": 3, "do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255}
    given = [pixels_of(image) for image in images]
    found = OcrByPillow()._preprocess(
        given, **asked, **usual, slice_mode=True, return_tensors="pt", disable_grouping=True
    )
    made = {name: found[name] for name in ("pixel_values", "target_sizes", "grids", "num_patches_per_image")}
    return {**made, "divisor": 4}


def texts(given: Given) -> list[str]:
    """The texts that transformers writes for the images of one prompt, each with its number."""
    writer = MiniCPMV4_6Processor.__new__(MiniCPMV4_6Processor)
    writer.slice_mode, writer.image_token = True, MARKS[0]
    for name, mark in zip(NAMES, MARKS[3:], strict=True):
        setattr(writer, f"{name}_token", mark)
    count = len(given["num_patches_per_image"])
    made = [writer.replace_image_token(given, at, image_token_divisor=given["divisor"]) for at in range(count)]
    found: list[str] = writer._prepend_local_ids([MARKS[0] * count], made, MARKS[0])
    return found


def pixels(given: Given) -> list[torch.Tensor]:
    """The patches of each tile, in reading order."""
    counts = given["target_sizes"].prod(-1).tolist()
    tiles = given["pixel_values"][0].split([PATCH * count for count in counts], dim=-1)
    both = zip(tiles, counts, strict=True)
    return [tile.reshape(3, PATCH, count, PATCH).permute(2, 0, 1, 3) for tile, count in both]


def _family(
    name: str,
    pool: str,
    kind: str = "MiniCPMV4_6",
    process: Callable[[Sequence[Image.Image], Given], Given] = processed,
    more: Given | None = None,
    types: str = "",
    **mode: Any,
) -> Family:
    """more: further settings of the processor. mode: fields of the config and settings of the processor."""
    judge, settings = partial(minicpm_v, kind, **mode), {**SETTINGS, **mode, **(more or {})}
    return Family(
        *(name, judge, MARKS, MARKS[0], settings, process, texts),
        types=types,
        pool=pool,
        pixels=pixels,
        unread=("grids", "num_patches_per_image", "divisor"),
    )


MINICPM = (
    _family("minicpm-v-4.6", "340KB"),
    _family("minicpm-v-4.6-4x", "500KB", downsample_mode="4x"),
    _family("minicpm-ocr", "500KB", "MiniCPMOcr", processed_by_ocr, {"small_image_upsize": "never"}),
    _family("minicpm-v-4.7", "340KB", "MiniCPMV4_7", types="mm_token_type_ids"),
)
