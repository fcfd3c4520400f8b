"""The level `amx` for a CPU without matrix registers: its library, with tiles.h in place of their instructions.

No part of the package: it is built into the cache of compiled files and loaded by tests alone, as a level named TILES.
Only the files that use the registers are compiled again; the others are those of the level itself.

Knows: build.py, the loader of libraries.
Must not know: what a test expects.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import pytest

from twostroke.backends.cpu import available_levels, build, library

TILES = "amx-emulated"
HERE = Path(__file__).parent
HEADER = HERE / "tiles.h"
LEVEL_FILES = {"level.cpp": HERE / "tiles_level.cpp"}
"""By the name of the file of csrc that each stands in for."""
USE = b"_tile_"


def unusable() -> str | None:
    """Why this machine cannot run the library; None where it can."""
    if "avx512" not in available_levels():
        return "this CPU does not run avx512, on which the level amx builds"
    if ctypes.CDLL(str(built())).ts_best_level() < 3:
        return "this CPU has no avx512_bf16, which the vector code of the level amx needs"
    return None


@cache
def built() -> Path:
    """The library, in the cache of compiled files."""
    cache, compiler, triple = build.shared_cache(), build.zig(), ("-target", build.TRIPLES["x86_64"])
    flags = (*build.FLAGS, *build.RELEASE, *triple, *build.level_flags("x86_64", "amx"))
    units = [LEVEL_FILES.get(unit.name, unit) for unit in build.sources("x86_64")]
    emulated = [unit for unit in units if any(USE in content for content in build.with_headers(unit))]
    plain = [(unit, flags) for unit in units if unit not in emulated]
    objects = [with_tiles(cache, compiler, unit, flags) for unit in emulated]
    objects += build.compile_all(cache, compiler, plain)
    return build.link(cache, compiler, objects, (*build.RELEASE, *triple, "-nostdlib++", "-shared", "-s"), ".so")


def with_tiles(cache: build.ObjectCache, compiler: build.Compiler, unit: Path, flags: tuple[str, ...]) -> Path:
    """The object of one file that uses matrix registers."""

    def compile_unit(made: Path) -> None:
        compiler.run([*flags, "-I", str(build.HEADERS), "-include", str(HEADER), "-c", str(unit), "-o", str(made)])

    inputs = (compiler.version, *flags, unit.name, HEADER.read_bytes(), *build.with_headers(unit))
    return cache.get(".o", inputs, compile_unit)


def load() -> str:
    """The name under which CpuOps finds the library from now on; the package itself never does. Skips the test where
    this CPU cannot run it."""
    if (why := unusable()) is not None:
        pytest.skip(why)
    path = built()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "LEVELS", (*library.LEVELS, TILES))
        patch.setattr(library, "library_path", lambda level: path)
        library.load_library(TILES)  # kept by its cache
        library.op_numbers(TILES)
    return TILES
