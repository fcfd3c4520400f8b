"""Tiles of PaddleOCR-VL, which are like those of Qwen. Narrow images are enlarged first."""

from __future__ import annotations

from msgspec import structs

from twostroke.images.families.qwen_vl import Lift, QwenProcessor, read_bounded
from twostroke.images.processor import Tiling
from twostroke.types.spec.fields import Fields

IMAGE = "<|IMAGE_PLACEHOLDER|>"


def read(fields: Fields, tiling: Tiling) -> QwenProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    return structs.replace(read_bounded(fields, tiling, 384 * 384, 1536 * 1536), mark=IMAGE, lift=Lift.EACH)
