"""Tiles of LightOnOCR, which are those of Pixtral; no token stands between the lines of an image."""

from __future__ import annotations

from msgspec import structs

from twostroke.images.families import pixtral
from twostroke.images.families.qwen_vl import IMAGE
from twostroke.images.processor import Tiling
from twostroke.types.spec.fields import Fields


def read(fields: Fields, tiling: Tiling) -> pixtral.PixtralProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    return structs.replace(pixtral.read(fields, tiling), mark=IMAGE, breaks_lines=False)
