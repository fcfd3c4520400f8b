"""Tiles of GLM-4.1V to 4.6V, which are like those of Qwen. Narrow images are enlarged. A settings file bounds the area
of an image times the frames of a video in one patch (temporal_patch_size). The bounds for one image are therefore
divided by temporal_patch_size."""

from __future__ import annotations

from msgspec import structs

from twostroke.images.families.qwen_vl import Lift, QwenProcessor, read_bounded
from twostroke.images.processor import Tiling
from twostroke.types.spec.fields import Fields

IMAGE = "<|image|>"
FRAMES = 2


def read(fields: Fields, tiling: Tiling) -> QwenProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    frames = fields.integer("temporal_patch_size", 1, 64, default=FRAMES)
    doubled = structs.replace(tiling, most_rows=frames * tiling.most_rows)
    found = read_bounded(fields, doubled, 112 * 112, 28 * 28 * 15_000)
    return structs.replace(found, least=found.least / frames, most=found.most / frames, mark=IMAGE, lift=Lift.BOTH)
