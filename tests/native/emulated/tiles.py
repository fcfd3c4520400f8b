"""The level `amx` for a CPU without matrix registers: its library, with tiles.h in place of their instructions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.native.emulated.emulated import EmulatedLevel, with_header

TILES = "amx-emulated"
HERE = Path(__file__).parent
HEADER = HERE / "tiles.h"
LEVEL = EmulatedLevel(TILES, "amx", HEADER, b"_tile_", "amx", "avx512", {"level.cpp": HERE / "tiles_level.cpp"})

unusable, load = LEVEL.unusable, LEVEL.load
with_tiles = partial(with_header, HEADER)
