"""The kernels for Windows under Wine, compared with those of this machine: every kernel over odd sizes, bit for bit.

The tests are skipped, with the reason, where Wine is missing or starts nothing. tests/packaging/test_wheels.py compiles
the kernels in any case. Both are for daily runs, because the compiler makes the libraries of Windows first, which takes
minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.compiling import quickly, shipped_program
from twostroke.backends.cpu import build

WINE = shutil.which("wine64") or shutil.which("/usr/lib/wine/wine64")
SWEEP = build.ROOT / "tests" / "native" / "sweep.cpp"

pytestmark = [pytest.mark.slow, pytest.mark.daily]


def sweep_for_windows() -> Path:
    """The sweep of the generic level as a program for Windows."""
    target = "x86_64-windows"
    units = [(unit, build.unit_flags(target, unit, "generic", quickly())) for unit in [*build.sources(target), SWEEP]]
    objects = build.compile_all(build.shared_cache(), build.zig(), units)
    linking = (*build.RELEASE, "-target", build.TRIPLES[target], "-nostdlib++", "-s")
    return build.link(build.shared_cache(), build.zig(), objects, linking, ".exe", build.LIBRARIES["windows"])


@pytest.mark.skipif(WINE is None, reason="Wine is not installed")
@pytest.mark.skipif(build.machine() != "x86_64", reason="Wine runs programs of its own architecture")
def test_windows_says_the_same_bits(tmp_path: Path) -> None:
    environment = {**os.environ, "WINEPREFIX": str(tmp_path / "prefix"), "WINEDEBUG": "-all"}
    there = tmp_path / "sweep.exe"
    shutil.copy(sweep_for_windows(), there)
    run = subprocess.run([str(WINE), str(there)], env=environment, capture_output=True, timeout=600, check=False)
    if not run.stdout:
        pytest.skip(f"Wine starts nothing here: {run.stderr.decode(errors='replace')[-300:]}")
    program = shipped_program("x86_64", SWEEP, "generic")
    here = subprocess.run([str(program)], capture_output=True, timeout=600, check=True)
    assert run.returncode == 0 and len(here.stdout) > 10_000_000
    assert run.stdout == here.stdout
