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


def static_program(machine: str, main: Path, flags: Sequence[str]) -> Path:
    """Compiled by the `ziglang` package for Linux on `machine`; runs without any library of the system."""
    target = ("-target", f"{machine}-linux-musl")
    # Without the C++ library, as in build.py: the kernels use its headers alone, and building it takes a minute.
    return program(build.zig(), machine, main, (*target, *flags), (*target, "-static", "-nostdlib++"))


def system_compiler() -> build.Compiler | None:
    """The compiler of this machine, with its version; None where there is none (the package needs none)."""
    path = shutil.which("g++") or shutil.which("clang++")
    if path is None:
        return None
    facts = Path(path).resolve().stat()
    return build.Compiler((path,), f"{path} {facts.st_size} {facts.st_mtime_ns}")
