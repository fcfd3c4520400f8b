"""Finds the processor of a family of vision models. Each family has a module that cuts images into tiles, by the
settings in a model's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.images.processor import Processor, Tiling
from twostroke.text.model_files import read_object
from twostroke.types.errors import UnsupportedModel
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.spec.fields import Fields

SETTINGS, ALL_SETTINGS, GROUP = "preprocessor_config.json", "processor_config.json", "image_processor"
MAX_BYTES = 1 << 20
NAMES = (
    *("gemma3", "gemma4", "gemma4_unified", "glm4v", "idefics3", "internvl", "kimi", "lfm2_vl", "lighton_ocr"),
    *("llama4", "llava", "llava_next", "minicpm_v", "paddleocr_vl", "pixtral", "qwen_vl"),
)
FAMILIES = {name: LazyModule(f"twostroke.images.families.{name}") for name in NAMES}
UNREAD = ("do_center_crop", "do_thumbnail", "do_pan_and_scan", "do_align_long_axis")
"""Settings that would change pixels and are not implemented; files that use them are refused."""
READ_BY = {"do_center_crop": ("llava", "llava_next")}
"""The families that implement a setting of UNREAD, which all other families refuse."""


def read_settings(folder: Path) -> Mapping[str, Any]:
    """Returns the settings of the image processor in a model's folder; none where it has no such file."""
    return {**read_object(folder / SETTINGS, MAX_BYTES), **_group(read_object(folder / ALL_SETTINGS, MAX_BYTES))}


def read_processor(family: str, tiling: Tiling, settings: Mapping[str, Any]) -> Processor:
    """Returns the processor that the settings describe. Raises CorruptModel, UnsupportedModel."""
    fields = Fields(settings, SETTINGS)
    for name in UNREAD:
        if fields.values.get(name) and family not in READ_BY.get(name, ()):
            raise UnsupportedModel(
                f"{SETTINGS}: {name} is not implemented.",
                why="It changes what the model sees.",
                fix="Use a model without it, or start with --images off.",
            )
    made: Processor = FAMILIES[family].read(fields, tiling)
    return made


def _group(values: Mapping[str, Any]) -> Mapping[str, Any]:
    found = values.get(GROUP)
    return found if isinstance(found, dict) else {}
