"""The Makefile builds the kernels again where any of their sources has changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_source_of_the_kernels_is_a_prerequisite() -> None:
    said = subprocess.run(["make", "-pn", "clean"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    line = next(line for line in said.stdout.splitlines() if line.startswith("NATIVE := "))
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cpp", ".h")}
    assert len(sources) > 100 and set(line.split()[2:]) >= sources
