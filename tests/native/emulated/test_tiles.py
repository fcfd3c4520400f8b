"""The emulator of matrix registers does what Intel's manual defines, and ends the process where a CPU would fault."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.native.emulated.tiles import HERE, LEVEL, TILES, unusable, with_tiles
from twostroke.backends.cpu import LEVELS, available_levels, best_level, build
from twostroke.backends.cpu.library import LEVELS_OF

pytestmark = pytest.mark.skipif("avx2" not in available_levels(), reason="the known answers are computed with AVX2")


@cache
def checks() -> Path:
    """The library of known answers."""
    kept, compiler, target = build.shared_cache(), build.zig(), ("-target", build.TRIPLES["x86_64"])
    flags = (*build.FLAGS, *build.RELEASE, *target, "-mcpu=x86_64_v3")
    made = with_tiles(kept, compiler, HERE / "tiles_check.cpp", flags)
    return build.link(kept, compiler, [made], (*build.RELEASE, *target, "-nostdlib++", "-shared"), ".so")


def test_the_library_is_compiled_also_where_it_cannot_run() -> None:
    """Most machines lack AVX-512. A name of csrc that hides one of the emulator's must be found on those, too."""
    assert LEVEL.built().stat().st_size > 0


def test_products_and_roundings_are_those_of_the_manual() -> None:
    line = ctypes.CDLL(str(checks())).check()
    assert line == 0, f"line {line} of tiles_check.cpp"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unconfigured", "TILELOADD: no configuration"),
        ("released", "TILELOADD: no configuration"),
        ("shapes", "TDPBF16PS: shapes that do not fit"),
        ("wide", "LDTILECFG: more than 16 rows of 64 bytes"),
    ],
)
def test_a_fault_ends_the_process(name: str, words: str) -> None:
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).fault(sys.argv[2].encode())"
    command = [sys.executable, "-c", program, str(checks()), name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode < 0 and words in result.stderr


def test_the_package_knows_no_emulated_level() -> None:
    assert all(TILES not in levels for levels in (*LEVELS_OF.values(), LEVELS, available_levels(), [best_level()]))
    assert ("avx512" in available_levels()) or unusable() is not None
