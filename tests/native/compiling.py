"""Compile the kernels with a program of the tests; what was compiled before comes from the cache of build.py."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from twostroke.backends.cpu import build


def program(compiler: build.Compiler, machine: str, main: Path, flags: Sequence[str], linking: Sequence[str]) -> Path:
    """The kernels for one machine and `main`, compiled with `flags`, as a program. Raises RuntimeError."""
    cache = build.shared_cache()
    objects = build.compile_all(cache, compiler, [(source, flags) for source in [*build.sources(machine), main]])
    return build.link(cache, compiler, objects, linking, ".program")


def shipped_program(machine: str, main: Path, level: str) -> Path:
    """The objects of a library and `main` as a program of this system. An installation has compiled the objects."""
    triple = build.TRIPLES[machine]
    return _leveled(machine, main, level, triple, (*build.RELEASE, "-s"))


def static_program(machine: str, main: Path, level: str) -> Path:
    """The same for Linux on `machine`, which runs without any library of the system."""
    return _leveled(machine, main, level, f"{machine}-linux-musl", ("-static",))


def _leveled(machine: str, main: Path, level: str, triple: str, linking: Sequence[str]) -> Path:
    """With the flags of the library of `level`, and the objects that its levels share."""
    cache, compiler = build.shared_cache(), build.zig()
    jobs = []
    for source in [*build.sources(machine), main]:
        flags = build.unit_flags(machine, source, level)
        jobs.append((source, tuple(triple if flag == build.TRIPLES[machine] else flag for flag in flags)))
    objects = build.compile_all(cache, compiler, jobs)
    # Without the C++ library, as in build.py: the kernels use its headers alone, and building it takes a minute.
    return build.link(cache, compiler, objects, (*linking, "-target", triple, "-nostdlib++"), ".program")


def system_compiler() -> build.Compiler | None:
    """The compiler of this machine, with its version; None where there is none (the package needs none)."""
    path = shutil.which("g++") or shutil.which("clang++")
    if path is None:
        return None
    facts = Path(path).resolve().stat()
    return build.Compiler((path,), f"{path} {facts.st_size} {facts.st_mtime_ns}")
