"""Compiles csrc/ into one shared library for each instruction-set level, with the compiler of the `ziglang` package.

    python src/twostroke/backends/cpu/build.py [--out FOLDER] [--target aarch64-macos] [--levels runnable] [--sanitize]

It runs before the package is installed and uses only the standard library. Compiled files are kept in the user's cache
folder (`~/.cache/twostroke/objects`). All checkouts and kinds of build share them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twostroke.system.object_cache import ObjectCache

ROOT = Path(__file__).resolve().parents[4]
HEADERS = ROOT / "csrc" / "include"
LIBRARY_FOLDER = Path(__file__).resolve().parent / "lib"
TRIPLES = {
    "x86_64": "x86_64-linux-gnu.2.17",
    "aarch64": "aarch64-linux-gnu.2.28",
    "aarch64-macos": "aarch64-macos.11.0",
    "x86_64-macos": "x86_64-macos.11.0",
    "x86_64-windows": "x86_64-windows-gnu",
    "aarch64-windows": "aarch64-windows-gnu",
}
"""The targets: an architecture and, where it is not Linux, a system."""
SUFFIXES = {"linux": ".so", "macos": ".dylib", "windows": ".dll"}
LIBRARIES = {"linux": ("-lpthread", "-lm"), "macos": (), "windows": ("-lws2_32", "-lapi-ms-win-core-synch-l1-2-0")}
"""The libraries that programs and shared libraries of each system are linked with."""
SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
"""The systems by Python's names for them."""
LEVELS: dict[str, dict[str, str]] = {
    "x86_64": {
        "generic": "x86_64",
        "avx2": "x86_64_v3",
        "avxvnni": "x86_64_v3+avxvnni",
        "avx512": "x86_64_v4+avx512vnni",
        "amx": "x86_64_v4+avx512vnni+avx512bf16+amx_tile+amx_int8+amx_bf16",
    },
    "aarch64": {
        "generic": "generic",
        "neon": "generic",
        "dotprod": "generic+dotprod",
        "i8mm": "generic+dotprod+i8mm",
    },
}
CONTAINS = {"avxvnni": ("avx2",), "amx": ("avx512",), "dotprod": ("neon",), "i8mm": ("dotprod", "neon")}
"""For each level, the lower levels whose code it also contains."""
SHARED = {"avxvnni": "avx2", "amx": "avx512", "dotprod": "neon", "i8mm": "dotprod"}
"""For some levels, a lower level: a source file without code for the level itself is compiled once, for the lower
level. The compiler makes no instructions of such a level from plain code, only from code that names them."""
ANY_CPU = ("level.cpp", "settle.cpp", *(f"{system}.cpp" for system in SUFFIXES))
"""Sources that are compiled for every CPU in all libraries: they are called before a level is chosen."""
FLAGS = (
    # zig turns -O1 to -O3 into -O2, and adds debugging information when no flag is given about it.
    *("-O2", "-g0", "-std=c++17", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fPIC"),
    *("-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-fno-math-errno", "-DNDEBUG"),
)
RELEASE = ("-fno-sanitize=undefined",)
LIGHT = ("-Xclang", "-O1")
"""Flags for builds that are tested and not shipped: the compiler takes less time, and the kernels take more."""
UNOPTIMIZED = ("-Xclang", "-O0", "-U_FORTIFY_SOURCE")
"""Flags for the quickest compilation, without optimization. Without -U, the system's headers would warn about that."""
TRAPPING = (*LIGHT, "-fsanitize=undefined", "-fsanitize-trap=undefined")
UNROLLED = ("stored_avx2.cpp", "stored_few_avx512.cpp")
"""Sources with much unrolled code. Optimizing them with TRAPPING takes minutes, so they are then UNOPTIMIZED."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler. command: the words before its arguments. version: changes where the compiler's output may change."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Sequence[str]) -> None:
        """Runs the compiler. Raises RuntimeError with the compiler's output."""
        result = subprocess.run([*self.command, *arguments], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"Compiling {' '.join(arguments[-3:])} failed:\n{result.stderr}")


def zig() -> Compiler:
    """Returns the compiler of the `ziglang` package. Raises RuntimeError where it is missing."""
    command = (sys.executable, "-m", "ziglang")
    answer = subprocess.run([*command, "version"], capture_output=True, text=True)
    if answer.returncode:
        raise RuntimeError("The kernels need the `ziglang` package to be compiled. Run: pip install ziglang==0.17.0")
    return Compiler((*command, "c++"), f"zig {answer.stdout.strip()}")


def shared_cache() -> ObjectCache:
    """Returns the user's cache of compiled files; `build/objects` in the checkout where it cannot be written."""
    _find_package()
    from twostroke.system.object_cache import ObjectCache

    try:
        return ObjectCache(_machine_facts()[0] / "objects")
    except OSError:
        return ObjectCache(ROOT / "build" / "objects")


def _machine_facts() -> tuple[Path, int]:
    """Returns the cache folder and the number of cores, as env.py reads them."""
    _find_package()
    from twostroke.assembly.settings.env import read_machine

    facts = read_machine()
    return facts.cache_folder, facts.cores


def _find_package() -> None:
    """Makes the package importable from the checkout, because nothing is installed when setup.py runs. Only modules
    that need no other package can be imported then."""
    if "twostroke" not in sys.modules:
        sys.path.insert(0, str(ROOT / "src"))


def machine() -> str:
    """Returns this machine's name as in TRIPLES. Raises RuntimeError for other machines."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = SYSTEMS.get(sys.platform, sys.platform)
    found = name if system == "linux" else f"{name}-{system}"
    if found not in TRIPLES:
        raise RuntimeError(f"Twostroke has kernels for {', '.join(TRIPLES)}, not for {sys.platform} on {name}.")
    return found


def architecture_of(target: str) -> str:
    """Returns the architecture of a target, such as x86_64, which is a key of LEVELS."""
    return target.partition("-")[0]


def system_of(target: str) -> str:
    """Returns the system of a target, as in SUFFIXES."""
    return target.partition("-")[2] or "linux"


def sources(target: str) -> list[Path]:
    """Returns every translation unit for one target. In each, the preprocessor leaves out code for levels that are not
    built. The architecture's own units are the largest and come first, so that no core waits for one at the end."""
    own = {"x86_64": "x86", "aarch64": "arm"}[architecture_of(target)]
    found = [path for folder in (own, "generic") for path in sorted((ROOT / "csrc" / folder).rglob("*.cpp"))]
    return [*found, system_source(target)]


def system_source(target: str) -> Path:
    """Returns the source file with all calls of a target's operating system."""
    return ROOT / "csrc" / "system" / f"{system_of(target)}.cpp"


def unit_flags(target: str, source: Path, level: str, checks: Sequence[str] = RELEASE) -> tuple[str, ...]:
    """Returns the flags with which build_all compiles a source for the library of one level."""
    mcpu, *defined = level_flags(target, level_of(source, level))
    if source.name in ANY_CPU:
        mcpu, *_ = level_flags(target, "generic")
    unoptimized = UNOPTIMIZED if source.name in UNROLLED and checks == TRAPPING else ()
    return (*FLAGS, *checks, *unoptimized, "-target", TRIPLES[target], mcpu, *defined)


def level_flags(target: str, level: str) -> tuple[str, ...]:
    """Returns the flags that select the instructions and the code of one level."""
    names = (level, *CONTAINS.get(level, ()))
    return (f"-mcpu={LEVELS[architecture_of(target)][level]}", *(f"-DTS_LEVEL_{name.upper()}" for name in names))


def runnable_levels() -> list[str]:
    """Returns the levels that this CPU runs, lowest first, from level.cpp compiled alone. Raises RuntimeError."""
    kept, compiler, target = shared_cache(), zig(), machine()
    triple = ("-target", TRIPLES[target])
    asked = (ROOT / "csrc/generic/machine/level.cpp", system_source(target))
    objects = compile_all(kept, compiler, [(source, unit_flags(target, source, "generic")) for source in asked])
    # Linux's libraries are left out: the process has them, and the compiler would need seconds for stand-ins.
    bare = ("-nostdlib",) if system_of(target) == "linux" else ("-nostdlib++", *LIBRARIES[system_of(target)])
    linked = link(kept, compiler, objects, (*triple, *bare, "-shared", "-s"), SUFFIXES[system_of(target)], ())
    bits = ctypes.CDLL(str(linked)).ts_levels()
    return [level for place, level in enumerate(LEVELS[architecture_of(target)]) if bits >> place & 1]


def levels_for(which: str, out: Path, target: str) -> list[str]:
    """Returns the levels to build. all: every level. runnable: those that this CPU runs. best: the highest of these.
    With the last two, libraries of other levels in `out` are built anew too. Raises RuntimeError."""
    known = list(LEVELS[architecture_of(target)])
    if which not in ("runnable", "best"):
        return known if which == "all" else [which]
    chosen = runnable_levels()[0 if which == "runnable" else -1 :]
    return [level for level in known if level in chosen or library_in(out, level, target).is_file()]


def library_in(folder: Path, level: str, target: str = "x86_64") -> Path:
    """Returns the path of the library of a level in a folder."""
    return folder / f"libtwostroke_{level}{SUFFIXES[system_of(target)]}"


def level_of(source: Path, level: str) -> str:
    """Returns the level for which a source is compiled. Where the source and its headers have no code for `level`, this
    is the lower level in SHARED."""
    contents = with_headers(source)
    while level in SHARED and not any(f"TS_LEVEL_{level.upper()}".encode() in content for content in contents):
        level = SHARED[level]
    return level


def with_headers(source: Path, more: Sequence[Path] = ()) -> list[bytes]:
    """Returns the content of a source and, once each, of all files of this project that it includes, directly or not.
    more: folders of headers after HEADERS."""
    found, left = {source: source.read_bytes()}, [source]
    while left:
        including = left.pop()
        for name in re.findall(rb'^\s*#\s*include\s+"([^"]+)"', found[including], re.MULTILINE):
            for folder in (including.parent, HEADERS, *more):
                header = (folder / name.decode()).resolve()
                if header not in found and header.is_file():
                    found[header] = header.read_bytes()
                    left.append(header)
    return list(found.values())


def include_flags(more: Sequence[Path] = ()) -> tuple[str, ...]:
    """Returns the flags with the folders in which the compiler looks for headers of this project."""
    return tuple(part for folder in (HEADERS, *more) for part in ("-I", str(folder)))


def compile_all(
    cache: ObjectCache,
    compiler: Compiler,
    jobs: Sequence[tuple[Path, Sequence[str]]],
    suffix: str = ".o",
    more: Sequence[Path] = (),
) -> list[Path]:
    """Returns the object of every (source, flags), from the cache or compiled on all cores. more: further folders of
    headers. Raises RuntimeError."""

    def compile_one(job: tuple[Path, Sequence[str]]) -> Path:
        source, flags = job
        places = (*include_flags(more), f"-ffile-prefix-map={ROOT}/=")
        action = "-S" if suffix == ".s" else "-c"
        return cache.get(
            suffix,
            (compiler.version, *flags, "", source.name, *with_headers(source, more)),
            lambda made: compiler.run([*flags, *places, action, str(source), "-o", str(made)]),
        )

    with ThreadPoolExecutor(_machine_facts()[1]) as pool:
        return list(pool.map(compile_one, jobs))


def link(
    cache: ObjectCache,
    compiler: Compiler,
    objects: Sequence[Path],
    flags: Sequence[str],
    suffix: str,
    libraries: Sequence[str] = LIBRARIES["linux"],
) -> Path:
    """Links objects of the cache to one library or program."""
    names = [path.name for path in objects]  # an object's name is a digest of its content
    return cache.get(
        suffix,
        (compiler.version, *flags, *libraries, "", *names),
        lambda made: compiler.run([*flags, "-o", str(made), *map(str, objects), *libraries]),
    )


def build_all(
    out: Path,
    target: str,
    checks: tuple[str, ...] = RELEASE,
    levels: Sequence[str] | None = None,
    cache: ObjectCache | None = None,
) -> list[Path]:
    """Builds the libraries of `levels` (None: all of them) into `out`, and returns their paths. Raises RuntimeError."""
    chosen = list(LEVELS[architecture_of(target)]) if levels is None else list(levels)
    kept, compiler, triple = cache or shared_cache(), zig(), ("-target", TRIPLES[target])
    units = sources(target)

    jobs = [(unit, unit_flags(target, unit, level, checks)) for level in chosen for unit in units]
    objects = compile_all(kept, compiler, jobs)
    out.mkdir(parents=True, exist_ok=True)
    built, libraries = [], LIBRARIES[system_of(target)]
    for index, level in enumerate(chosen):
        own = objects[index * len(units) : (index + 1) * len(units)]
        linking = (*checks, *triple, "-nostdlib++", "-shared", "-s")
        library = library_in(out, level, target)
        _copy(link(kept, compiler, own, linking, library.suffix, libraries), library)
        built.append(library)
    kept.trim()
    return built


def _copy(source: Path, target: Path) -> None:
    """Copies a file where its content differs. The target is replaced at once, because programs may be running it."""
    content = source.read_bytes()
    if target.exists() and target.read_bytes() == content:
        return
    partial = target.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.chmod(0o755)
    partial.replace(target)


def main() -> int:
    """Builds the native kernels, as the command line of this module asks."""
    parser = argparse.ArgumentParser(description="Compile the native kernels.")
    parser.add_argument("--out", type=Path, default=LIBRARY_FOLDER)
    parser.add_argument("--target", choices=list(TRIPLES), default=None)
    words = dict.fromkeys(("all", "runnable", "best", *LEVELS["x86_64"], *LEVELS["aarch64"]))
    parser.add_argument("--levels", choices=tuple(words), default="all", help="of this CPU, all, or one by its name")
    parser.add_argument("--sanitize", action="store_true", help="trap on undefined behaviour")
    asked = parser.parse_args()
    try:
        target, checks = asked.target or machine(), TRAPPING if asked.sanitize else RELEASE
        for library in build_all(asked.out, target, checks, levels_for(asked.levels, asked.out, target)):
            print(library)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
