"""Which native source may know what: code for the CPU knows no CUDA."""

from __future__ import annotations

import re
from pathlib import Path

from tests.laws.test_house import NATIVE, ROOT, short, text_of

CUDA = ROOT / "csrc" / "cuda"


def of_the_cpu() -> list[Path]:
    return [path for path in NATIVE if CUDA not in path.parents]


def test_sources_of_the_cpu_do_not_know_cuda() -> None:
    found = [short(path) for path in of_the_cpu() if re.search("cuda|nvidia|ptx", text_of(path), re.IGNORECASE)]
    assert found == [] and len(of_the_cpu()) > 150 and len(NATIVE) > len(of_the_cpu()) + 80


def test_headers_for_cuda_are_in_its_folder() -> None:
    named = re.compile(r'#include "(twostroke/cuda/[^"]+)"')
    names = {name for path in NATIVE for name in named.findall(text_of(path))}
    assert len(names) > 30 and [name for name in names if not (CUDA / "include" / name).is_file()] == []
