"""Tiles of GLM-4.1V to 4.6V, which are like those of Qwen. Narrow images are enlarged. A settings file bounds the area
of all frames of a patch together (temporal_patch_size), so the bounds of one image are divided by this number."""

from __future__ import annotations

from msgspec import structs

from twostroke.images.processor import Tiling
from twostroke.images.qwen_vl import Lift, QwenProcessor, read_bounded
from twostroke.types.spec.fields import Fields

IMAGE = "<|image|>"
FRAMES = 2


def read(fields: Fields, tiling: Tiling) -> QwenProcessor:
    """Returns the processor that a file describes. Raises CorruptModel."""
    frames = fields.integer("temporal_patch_size", 1, 64, default=FRAMES)
    doubled = structs.replace(tiling, most_rows=frames * tiling.most_rows)
    found = read_bounded(fields, doubled, 112 * 112, 28 * 28 * 15_000)
    return structs.replace(found, least=found.least / frames, most=found.most / frames, mark=IMAGE, lift=Lift.BOTH)
