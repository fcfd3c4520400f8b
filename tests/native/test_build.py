"""The native tier: undefined behaviour traps under the whole grid; every level compiles for aarch64."""

from __future__ import annotations

import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tiers import TIER, levels, thinned
from twostroke.backends.cpu import build
from twostroke.backends.cpu.library import _SIGNATURES, LEVELS, LEVELS_OF, load_library
from twostroke.types.errors import BackendError

ROOT = Path(__file__).resolve().parents[2]

UNDER_TRAPS = """
import sys
from pathlib import Path
from twostroke.backends.cpu import library
library.library_path = lambda level: Path(sys.argv[1]) / f"libtwostroke_{level}.so"
import pytest
from tests.native.some_cases import SomeCases
from tests.ops.native import Answers
Answers.checked = False
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[SomeCases("traps")]))
"""
GRIDS = (("ops", "attention", "latent", "embed", "experts"), ("linear", "feed_forward"))


@pytest.mark.slow
def test_no_undefined_behaviour_on_the_grid(tmp_path: Path) -> None:
    """A build that traps (SIGILL) on undefined behaviour runs the grid of odd sizes, at one level of the day.

    The generic level is always with it: its library says what this CPU runs.
    """
    needed = {"generic", *thinned(levels()[1:], "traps", 1)}
    made = build.build_all(tmp_path, build.machine(), build.TRAPPING, sorted(needed))
    assert [path.stat().st_size > 10_000 for path in made] == [True] * len(made)

    def run(names: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        files = [f"tests/ops/test_{name}_native.py" for name in names]
        command = [sys.executable, "-c", UNDER_TRAPS, str(tmp_path), *TIER.arguments(), *files]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)

    with ThreadPoolExecutor(max_workers=2) as pool:
        for result in pool.map(run, GRIDS):
            assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


def test_traps_do_trap(tmp_path: Path) -> None:
    """The flags above are worth something: a signed overflow ends the process under them."""
    source = tmp_path / "overflow.c"  # C: the library of C++ would be built first, for a minute
    source.write_text("int main(int count, char** names) { return 2147483647 + count == 5 || !names; }\n")
    flags = ["-O1", *build.TRAPPING, str(source), "-o", str(tmp_path / "overflow")]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags], check=True, capture_output=True, timeout=300)
    assert subprocess.run([str(tmp_path / "overflow")], check=False).returncode < 0


@pytest.mark.slow
def test_every_level_compiles_for_aarch64(tmp_path: Path) -> None:
    """aarch64 libraries with every function of the ABI. Compiled here; test_arm_levels.py runs the sources."""
    libraries = build.build_all(tmp_path, "aarch64")
    assert [library.name for library in libraries] == [f"libtwostroke_{level}.so" for level in LEVELS_OF["aarch64"]]
    for library in libraries:
        content = library.read_bytes()
        assert content[:4] == b"\x7fELF" and struct.unpack_from("<H", content, 18)[0] == 183
        assert all(name.encode() + b"\0" in content for name in _SIGNATURES)


def test_what_is_built_is_what_is_looked_for() -> None:
    assert {machine: tuple(levels) for machine, levels in build.LEVELS.items()} == LEVELS_OF
    assert LEVELS == LEVELS_OF[build.machine()]


def test_another_architecture_has_levels_that_this_one_refuses() -> None:
    other = next(level for levels in LEVELS_OF.values() for level in levels if level not in LEVELS)
    with pytest.raises(BackendError, match=f"no kernels of level {other}"):
        load_library(other)
