"""Compiles the kernels with a program of the tests. Files that were compiled before come from the cache of build.py.

Most of a run's time was compiling. So kernels that never run, or run for seconds, are compiled with less optimization
on each commit. A daily run compiles them as they are shipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.tiers import TIER
from twostroke.backends.cpu import build

BARE = Path(__file__).with_name("bare.cpp")


def quickly() -> tuple[str, ...]:
    """Flags for kernels that are linked and inspected, or run for seconds: no optimization, except in a daily run."""
    return build.RELEASE if TIER.daily else (*build.RELEASE, *build.UNOPTIMIZED)


def lightly() -> tuple[str, ...]:
    """Flags for kernels that run for a minute: little optimization, except in a daily run."""
    return build.RELEASE if TIER.daily else (*build.RELEASE, *build.LIGHT)


def arm_levels() -> list[str]:
    """The levels of aarch64 that are compiled. On each commit this is the highest one, which contains the code of the
    other vector levels where it adds none."""
    found = list(build.LEVELS["aarch64"])
    return found if TIER.daily else found[-1:]


def program(compiler: build.Compiler, level: str, main: Path, flags: Sequence[str], linking: Sequence[str]) -> Path:
    """Compiles the kernels of one level of this machine and `main`, with `flags`, as a program. Raises RuntimeError.

    On each commit the sources for every processor are the objects that the installation has compiled, and so are those
    of the system, because the names that they share contain types of one C++ library.
    """
    cache, machine = build.shared_cache(), build.machine()
    ready = [] if TIER.daily else [unit for unit in build.sources(machine) if unit.parent.name not in ("x86", "arm")]
    units = [(unit, flags) for unit in [*build.sources(machine), main] if unit not in ready]
    shipped = [(unit, build.unit_flags(machine, unit, level)) for unit in ready]
    objects = build.compile_all(cache, compiler, units) + build.compile_all(cache, build.zig(), shipped)
    return build.link(cache, compiler, objects, linking, ".program")


def shipped_program(machine: str, main: Path, level: str) -> Path:
    """The objects of a library and `main` as a program of this system. An installation has compiled the objects."""
    objects = _objects(machine, main, level, build.RELEASE)
    # Without the C++ library, as in build.py: the kernels use its headers alone, and building it takes a minute.
    linking = (*build.RELEASE, "-s", "-target", build.TRIPLES[machine], "-nostdlib++")
    return build.link(build.shared_cache(), build.zig(), objects, linking, ".program")


def static_program(main: Path, level: str) -> Path:
    """The objects of a library for Linux on aarch64 and `main`, as a program that runs without any library of the
    system. bare.cpp has the functions that they call."""
    flags = (*build.unit_flags("aarch64", BARE, "generic"), "-ffreestanding", "-fno-builtin")
    cache, compiler = build.shared_cache(), build.zig()
    objects = [*_objects("aarch64", main, level, lightly()), *build.compile_all(cache, compiler, [(BARE, flags)])]
    linking = ("-static", "-no-pie", "-nostdlib", "-target", build.TRIPLES["aarch64"])
    return build.link(cache, compiler, objects, linking, ".program", ())


def _objects(machine: str, main: Path, level: str, checks: Sequence[str]) -> list[Path]:
    """The objects, with the flags of the library of `level`, so that a build of the library has the same ones."""
    jobs = [(unit, build.unit_flags(machine, unit, level, checks)) for unit in [*build.sources(machine), main]]
    return build.compile_all(build.shared_cache(), build.zig(), jobs)


def system_compiler() -> build.Compiler | None:
    """The compiler of this machine, with its version; None where there is none (the package needs none)."""
    return next(iter(system_compilers(("g++", "clang++"))), None)


def system_compilers(names: Sequence[str] = ("clang++", "g++")) -> list[build.Compiler]:
    """Those of this machine, with their versions."""
    found = []
    for path in filter(None, map(shutil.which, names)):
        facts = Path(path).resolve().stat()
        found.append(build.Compiler((path,), f"{path} {facts.st_size} {facts.st_mtime_ns}"))
    return found
