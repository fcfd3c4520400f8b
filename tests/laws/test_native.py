"""What a native source may depend on: code for the CPU does not mention CUDA, and few files ask the preprocessor for a
level."""

from __future__ import annotations

import re
from pathlib import Path

from tests.laws.test_house import NATIVE, ROOT, short, text_of

CUDA = ROOT / "csrc" / "cuda"
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\bTS_LEVEL_", re.MULTILINE)
CHOOSING = {
    # these define a level in numbers
    "csrc/include/twostroke/level.h": 7,
    "csrc/include/twostroke/products/register_tiles.h": 3,
    # these choose the headers with a level's vectors
    "csrc/include/twostroke/simd.h": 3,
    "csrc/include/twostroke/integers.h": 3,
    "csrc/include/twostroke/attention/tile_run.h": 2,
    "csrc/include/twostroke/x86/registers.h": 1,
    "csrc/generic/machine/limits.cpp": 4,
}
"""How often a file asks the preprocessor for a level. Other files ask kLevel, or belong to one level as a whole."""


def of_the_cpu() -> list[Path]:
    return [path for path in NATIVE if CUDA not in path.parents]


def test_sources_of_the_cpu_do_not_know_cuda() -> None:
    found = [short(path) for path in of_the_cpu() if re.search("cuda|nvidia|ptx", text_of(path), re.IGNORECASE)]
    assert found == [] and len(of_the_cpu()) > 150 and len(NATIVE) > len(of_the_cpu()) + 80


def test_headers_for_cuda_are_in_its_folder() -> None:
    named = re.compile(r'#include "(twostroke/cuda/[^"]+)"')
    names = {name for path in NATIVE for name in named.findall(text_of(path))}
    assert len(names) > 30 and [name for name in names if not (CUDA / "include" / name).is_file()] == []


def is_whole(text: str) -> bool:
    """Whether one condition is around all code of a file, and is the only condition about a level."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("//")]
    return bool(CONDITION.match(lines[0])) and lines[-1] == "#endif" and len(CONDITION.findall(text)) == 1


def test_a_file_of_one_level_is_found() -> None:
    assert is_whole("// Kernels.\n#if defined(TS_LEVEL_AVX2)\nint a;\n#endif\n")
    assert not is_whole("#if defined(TS_LEVEL_AVX2)\nint a;\n#endif\nint b;\n")
    assert not is_whole("#if defined(TS_LEVEL_AVX2)\n#if defined(TS_LEVEL_AVXVNNI)\n#endif\n#endif\n")


def test_code_asks_the_level_and_not_the_preprocessor() -> None:
    asking = {short(path): len(CONDITION.findall(text_of(path))) for path in of_the_cpu()}
    found = {name: count for name, count in asking.items() if count and not is_whole(text_of(ROOT / name))}
    assert found == CHOOSING
