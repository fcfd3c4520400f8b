"""The level `avxvnni` for a CPU without AVX-VNNI: its library, with vnni.h in place of the one instruction."""

from __future__ import annotations

from pathlib import Path

from tests.native.emulated.emulated import LIGHT, EmulatedLevel

HEADER = Path(__file__).parent / "vnni.h"
LEVEL = EmulatedLevel("avxvnni-emulated", "avxvnni", HEADER, b"_mm256_dpbusd_avx_epi32", "avx2", "avx2", checks=LIGHT)
load = LEVEL.load
