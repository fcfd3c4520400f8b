"""Compile csrc/ into one shared library for each instruction-set level, with the compiler of the `ziglang` package.

    python src/twostroke/backends/cpu/build.py [--out FOLDER] [--target aarch64] [--sanitize]

Runs before the package is installed, so it uses the standard library alone.

Knows: sources, compiler flags.
Must not know: what the kernels compute.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
LIBRARY_FOLDER = Path(__file__).resolve().parent / "lib"
TRIPLES = {"x86_64": "x86_64-linux-gnu.2.17", "aarch64": "aarch64-linux-gnu.2.28"}
LEVELS: dict[str, dict[str, str]] = {
    "x86_64": {
        "generic": "x86_64",
        "avx2": "x86_64_v3",
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
CONTAINS = {"amx": ("avx512",), "dotprod": ("neon",), "i8mm": ("dotprod", "neon")}
"""Levels whose code a level builds upon."""
FLAGS = (
    *("-O3", "-std=c++17", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fPIC"),
    *("-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-fno-math-errno", "-DNDEBUG"),
)
RELEASE = ("-fno-sanitize=undefined",)
TRAPPING = ("-fsanitize=undefined", "-fsanitize-trap=undefined")


def machine() -> str:
    """This machine's architecture, as in TRIPLES. Raises RuntimeError for others."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if name not in TRIPLES or sys.platform != "linux":
        raise RuntimeError(
            f"Twostroke has kernels for Linux on {' and '.join(TRIPLES)}, not for {sys.platform} on {name}."
        )
    return name


def sources() -> list[Path]:
    """Every translation unit; each guards itself by level."""
    return sorted(path for folder in ("generic", "x86", "arm") for path in (ROOT / "csrc" / folder).glob("*.cpp"))


def newest_input() -> float:
    """Time of the newest file that a library depends on."""
    inputs = [*sources(), *(ROOT / "csrc" / "include").rglob("*.h"), Path(__file__)]
    return max(path.stat().st_mtime for path in inputs)


def build_all(out: Path, target: str, checks: tuple[str, ...] = RELEASE) -> list[Path]:
    """Build what is out of date; returns the libraries. Raises RuntimeError with the compiler's words."""
    out.mkdir(parents=True, exist_ok=True)
    built = []
    for level, cpu in LEVELS[target].items():
        library = out / f"libtwostroke_{level}.so"
        if not library.exists() or library.stat().st_mtime < newest_input():
            _build_level(library, level, cpu, target, checks)
        built.append(library)
    return built


def _build_level(library: Path, level: str, cpu: str, target: str, checks: tuple[str, ...]) -> None:
    objects = library.parent / f"objects-{target}-{level}"
    objects.mkdir(exist_ok=True)
    common = [
        "-target",
        TRIPLES[target],
        f"-mcpu={cpu}",
        *(f"-DTS_LEVEL_{name.upper()}" for name in (level, *CONTAINS.get(level, ()))),
        "-I",
        str(ROOT / "csrc/include"),
    ]

    def compile_one(source: Path) -> Path:
        target_file = objects / f"{source.parent.name}_{source.stem}.o"
        _zig([*FLAGS, *checks, *common, "-c", str(source), "-o", str(target_file)])
        return target_file

    with ThreadPoolExecutor(max_workers=2) as pool:
        compiled = list(pool.map(compile_one, sources()))
    partial = library.with_suffix(".partial")
    _zig(
        [
            *checks,
            *common[:2],
            "-nostdlib++",
            "-shared",
            "-s",
            "-o",
            str(partial),
            *map(str, compiled),
            "-lpthread",
            "-lm",
        ]
    )
    partial.replace(library)
    for path in compiled:
        path.unlink()
    objects.rmdir()


def _zig(arguments: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", "ziglang", "c++", *arguments], capture_output=True, text=True)
    if result.returncode == 0:
        return
    if "No module named ziglang" in result.stderr:
        raise RuntimeError("The kernels need the `ziglang` package to be compiled. Run: pip install ziglang==0.17.0")
    raise RuntimeError(f"Compiling {arguments[-3:]} failed:\n{result.stderr}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compile the native kernels.")
    parser.add_argument("--out", type=Path, default=LIBRARY_FOLDER)
    parser.add_argument("--target", choices=list(TRIPLES), default=None)
    parser.add_argument("--sanitize", action="store_true", help="trap on undefined behaviour")
    asked = parser.parse_args()
    try:
        for library in build_all(asked.out, asked.target or machine(), TRAPPING if asked.sanitize else RELEASE):
            print(library)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
