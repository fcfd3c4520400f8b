"""A level of kernels for a CPU that lacks its instructions: its library, with a header of ours in place of them.

This is no part of the package. It is built into the cache of compiled files, and only tests load it, as a level with
its own name. Only the files that use the instructions are compiled again. The others are those of the level with the
same code.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from twostroke.backends.cpu import available_levels, build, library
from twostroke.system.object_cache import ObjectCache

TARGET = "x86_64"
LIGHT = (*build.RELEASE, *build.LIGHT)
"""Flags that take less time to compile, because nothing here measures how fast a level is."""


@dataclass(frozen=True)
class EmulatedLevel:
    """name: the name under which it is loaded. level: the level whose code it has. header: the header that is included
    before each file with `use` in its text or in a header; such a file is compiled with `checks`. instructions: the
    level whose instructions the compiler may use. needs: the level that this CPU must run. stand_ins: files that
    replace files of csrc, by the names of those files."""

    name: str
    level: str
    header: Path
    use: bytes
    instructions: str
    needs: str
    stand_ins: Mapping[str, Path] = field(default_factory=dict, hash=False)
    checks: tuple[str, ...] = build.RELEASE

    def unusable(self) -> str | None:
        """Why this machine cannot run the library; None where it can."""
        if self.needs not in available_levels():
            return f"this CPU does not run {self.needs}, on which the level {self.level} builds"
        place = build_place(self.level)
        if self.stand_ins and not ctypes.CDLL(str(self.built())).ts_levels() >> place & 1:
            return f"this CPU lacks what the vector code of the level {self.level} needs"
        return None

    def built(self) -> Path:
        """The library, in the cache of compiled files."""
        return _built(self)

    def load(self) -> str:
        """The name under which CpuOps finds the library from now on; the package itself never finds it. Skips the test
        where this CPU cannot run it."""
        if (why := self.unusable()) is not None:
            pytest.skip(why)
        path = self.built()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "LEVELS", (*library.LEVELS, self.name))
            patch.setattr(library, "library_path", lambda level: path)
            library.load_library(self.name)  # kept by its cache
            library.op_numbers(self.name)
        return self.name

    def emulates(self, unit: Path) -> bool:
        """Whether a file is compiled with the header."""
        return any(self.use in content for content in build.with_headers(unit))

    def flags(self, unit: Path) -> tuple[str, ...]:
        """The flags with which a file is compiled."""
        shared = build.level_of(unit, self.level)
        runs_here = build_place(shared) <= build_place(self.instructions)
        if unit.name in build.ANY_CPU or (runs_here and not self.emulates(unit)):
            return build.unit_flags(TARGET, unit, self.level)
        checks = self.checks if self.emulates(unit) else build.RELEASE
        if unit.name in build.UNROLLED and checks != build.RELEASE:  # the optimizer needs a minute for one such file
            checks = (*build.RELEASE, *build.UNOPTIMIZED)
        _, *defined = build.level_flags(TARGET, shared)
        target = ("-target", build.TRIPLES[TARGET], f"-mcpu={build.LEVELS[TARGET][self.instructions]}")
        return (*build.FLAGS, *checks, *target, *defined)


def build_place(level: str) -> int:
    """The number of a level in the ABI."""
    return library.LEVELS_OF[TARGET].index(level)


@cache
def _built(level: EmulatedLevel) -> Path:
    kept, compiler = build.shared_cache(), build.zig()
    units = [level.stand_ins.get(unit.name, unit) for unit in build.sources(TARGET)]
    emulated = [unit for unit in units if level.emulates(unit)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda unit: with_header(level.header, kept, compiler, unit, level.flags(unit)), emulated)
        objects = list(made)
    objects += build.compile_all(kept, compiler, [(unit, level.flags(unit)) for unit in units if unit not in emulated])
    linking = (*build.RELEASE, "-target", build.TRIPLES[TARGET], "-nostdlib++", "-shared", "-s")
    return build.link(kept, compiler, objects, linking, ".so")


def with_header(
    header: Path, kept: ObjectCache, compiler: build.Compiler, unit: Path, flags: tuple[str, ...]
) -> Path:
    """The object of one file, with a header before it."""

    def compile_unit(made: Path) -> None:
        compiler.run([*flags, "-I", str(build.HEADERS), "-include", str(header), "-c", str(unit), "-o", str(made)])

    inputs = (compiler.version, *flags, unit.name, *build.with_headers(header), *build.with_headers(unit))
    return kept.get(".o", inputs, compile_unit)
