"""How a family makes tiles of images and text around them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from twostroke.images.decoder import Step
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.lazy_module import LazyModule
from twostroke.types.spec.fields import Fields

SETTINGS, ALL_SETTINGS, GROUP = "preprocessor_config.json", "processor_config.json", "image_processor"
MAX_BYTES = 1 << 20
FAMILIES = {"idefics3": LazyModule("twostroke.images.idefics3")}
UNREAD = ("do_center_crop", "do_thumbnail", "do_pan_and_scan", "do_align_long_axis")
"""Settings that would change pixels; files that ask for them are refused."""


class Cut(Struct, frozen=True):
    """What is made of one image. steps: the steps that child.py runs. sizes: width and height of each tile. columns,
    rows: how many columns and rows of tiles the image is cut into, 0 where it is one tile.
    """

    steps: tuple[Step, ...]
    sizes: tuple[tuple[int, int], ...]
    columns: int = 0
    rows: int = 0

    @property
    def num_bytes(self) -> int:
        """What the steps give."""
        return sum(3 * width * height for width, height in self.sizes)


class Processor(Protocol):
    """The rules of a family."""

    @property
    def settings(self) -> str:
        """All that changes pixels, as text: a part of each tile's key."""

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        """What each of 256 bytes means in red, green and blue."""

    @property
    def mark(self) -> str:
        """What the template writes for one image."""

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """What is made of an image of this size. low: with few tiles."""

    def text(self, cut: Cut, rows: int) -> str:
        """What stands in the prompt for an image. rows: image rows of a tile."""


def read_processor(family: str, side: int, folder: Path) -> Processor:
    """The processor of a model's folder. side: the side of a tile. Raises CorruptModel, UnsupportedModel."""
    values = {**_object(folder / SETTINGS), **_group(_object(folder / ALL_SETTINGS))}
    fields = Fields(values, SETTINGS)
    for name in UNREAD:
        if fields.values.get(name):
            raise UnsupportedModel(
                f"{SETTINGS}: {name} is not implemented.",
                why="It changes what the model sees.",
                fix="Use a model without it, or start with --images off.",
            )
    made: Processor = FAMILIES[family].read(fields, side)
    return made


def _group(values: Mapping[str, Any]) -> Mapping[str, Any]:
    found = values.get(GROUP)
    return found if isinstance(found, dict) else {}


def _object(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty where there is no such file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CorruptModel(f"{path.name} is too large.", why=f"More than {MAX_BYTES:,} bytes.")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptModel(f"{path.name} cannot be read.", why=f"{type(error).__name__}.") from None
    if not isinstance(found, dict):
        raise CorruptModel(f"{path.name} is no JSON object.")
    return found


def table(mean: Sequence[float], std: Sequence[float], factor: float) -> tuple[tuple[float, float, float], ...]:
    """What each byte means: (byte * factor - mean) / std."""
    rows = ([(byte * factor - m) / s for m, s in zip(mean, std, strict=True)] for byte in range(256))
    return tuple((red, green, blue) for red, green, blue in rows)
