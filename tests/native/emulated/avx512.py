"""The levels `avx512` and `amx` for a CPU without AVX-512: their libraries, with avx512.h in place of its instructions.
"""

from __future__ import annotations

from pathlib import Path

from tests.native.emulated.emulated import LIGHT, EmulatedLevel

HERE = Path(__file__).parent

LEVEL = EmulatedLevel("avx512-by-avx2", "avx512", HERE / "avx512.h", b"_mm512_", "avx2", "avx2", checks=LIGHT)
_STAND_INS = {"level.cpp": HERE / "tiles_level.cpp"}
AMX = EmulatedLevel("amx-by-avx2", "amx", HERE / "amx_by_avx2.h", b"_mm512_", "avx2", "avx2", _STAND_INS, LIGHT)
