"""LFM2-VL as a tiny folder. Its judge's processor needs torchvision; here its sizes and grids come without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from PIL import Image

from tests.vision.families.family import TEXT, Family, Given, library
from tests.vision.files.by_pillow import ByPillow, judge_module, pixels_of

judges: Any = judge_module("lfm2_vl.image_processing_lfm2_vl")

LFM2_MARKS = (
    *("<image>", "<|end|>", "<|start|>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
    *(f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5)),
)
LFM2_SETTINGS: Given = {
    **{"encoder_patch_size": 8, "min_image_tokens": 3, "max_image_tokens": 8, "tile_size": 32, "max_tiles": 4},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]},
}


def lfm2_vl() -> torch.nn.Module:
    """Learned places of 5 x 5 patches, fitted to each tile, and short convolutions and attention in turn."""
    config = transformers.Lfm2VlConfig(
        text_config={
            **{**TEXT, "layer_types": ["conv", "full_attention"] * 2, "block_multiple_of": 16, "model_type": "lfm2"},
            "block_auto_adjust_ff_dim": False,
        },
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"num_patches": 25, "patch_size": 8, "model_type": "siglip2_vision_model", "vision_use_head": False},
        },
        image_token_id=library(LFM2_MARKS).token_to_id("<image>"),
        projector_hidden_size=40,
        tie_word_embeddings=False,
    )
    config.architectures = ["Lfm2VlForConditionalGeneration"]
    return transformers.Lfm2VlForConditionalGeneration(config)


class Lfm2ByPillow(judges.Lfm2VlImageProcessor, ByPillow):  # type: ignore[misc, name-defined]
    """The judge's sizes and grids, with Pillow."""

    def __init__(self) -> None:
        """Makes the processor without torchvision."""


def lfm2_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all tiles in reading order with padding. The inputs for texts come with them."""
    usual = ("downsample_factor", "min_tiles", "max_tiles", "use_thumbnail", "max_pixels_tolerance", "resample")
    asked = {name: getattr(judges.Lfm2VlImageProcessor, name) for name in usual}
    mean, std = (torch.tensor(settings[name])[:, None, None] for name in ("image_mean", "image_std"))
    asked |= {name: value for name, value in settings.items() if not name.startswith("image_")}
    made: Given = {name: [] for name in ("image_rows", "image_cols", "image_sizes")}
    padded, masks, shapes = [], [], []
    for image in images:
        tiles, rows, columns, sizes = Lfm2ByPillow().resize_and_split(pixels_of(image)[None], **asked)
        for tile in tiles[0]:
            normed = ((tile.reshape(tile.shape[-3:]) / 255 - mean) / std)[None]
            found, mask = judges.pad_along_first_dim(judges.convert_image_to_patches(normed, 8), 32)
            if len(found[0]) > 32:
                raise ValueError("the judge gives masks and patches of different lengths")
            padded.append(found[0])
            masks.append(mask)
            shapes.append([normed.shape[2] // 8, normed.shape[3] // 8])
        for name, values in zip(made, (rows, columns, sizes), strict=True):
            made[name] += values
    made |= {"pixel_values": torch.stack(padded), "pixel_attention_mask": torch.stack(masks)}
    return {**made, "spatial_shapes": torch.tensor(shapes)}


def lfm2_texts(given: Given) -> list[str]:
    """The marks of tiles, where there are several."""
    texts = []
    for rows, columns, (height, width) in zip(
        given["image_rows"], given["image_cols"], given["image_sizes"], strict=True
    ):
        whole = "<image>" * (int(height) // 16 * (int(width) // 16))
        tiles = [f"<|img_row_{row + 1}_col_{column + 1}|>" for row in range(rows) for column in range(columns)]
        shown = "".join(tile + "<image>" * 4 for tile in tiles) + "<|img_thumbnail|>" if len(tiles) > 1 else ""
        texts.append(f"<|image_start|>{shown}{whole}<|image_end|>")
    return texts


def lfm2_pixels(given: Given) -> list[torch.Tensor]:
    """The patches of each tile."""
    counts = given["pixel_attention_mask"].sum(-1).tolist()
    both = zip(given["pixel_values"], counts, strict=True)
    return [values[:count].reshape(count, 8, 8, 3) for values, count in both]


LFM2_VL = Family(
    *("lfm2-vl", lfm2_vl, LFM2_MARKS, "<image>", LFM2_SETTINGS, lfm2_processed, lfm2_texts),
    pixels=lfm2_pixels,
    unread=("image_rows", "image_cols", "image_sizes"),
)
