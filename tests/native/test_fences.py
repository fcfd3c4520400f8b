"""No kernel reads or writes a byte next to its operands (see fences.py), at every instruction-set level.

In a whole run, for one of the two sides, the kernels of one level are built to trap (SIGILL) on undefined behaviour. So
one pass over the grid checks both. A daily run also has a pass of its own for that (test_build.py).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.tiers import TIER, levels, thinned
from twostroke.backends.cpu import build, library

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("cases", "elementwise", "attention/attention", "attention/latent", "products/linear", "products/experts"),
    *("products/feed_forward", "products/low_rank", "states", "products/stored"),
)
GRIDS = [str(place.with_name(f"test_{place.name}_native.py")) for place in (Path("tests/ops", name) for name in NAMES)]
ONE_TOO_MANY = """
import numpy as np
from tests.native.fences import fence
from twostroke.backends.cpu.library import load_library, op_numbers, run_words
x = fence(np.ones(7, np.float32), "end")
rows, out = np.zeros(1, np.int32), np.ones(8, np.float32)
library = load_library("generic")
context = library.ts_context_create(1)
def gather(columns):
    values = [word for each in (out, x) for word in (each.ctypes.data, columns, 1, 1, columns)]
    words = np.array([op_numbers("generic")["gather_rows"], *values, rows.ctypes.data, 1], np.int64)
    return run_words(library, context, words.ctypes.data, len(words))[0]
print(gather(7), flush=True)
gather(8)
"""
TAKEN = """
import sys
from pathlib import Path
from tests.native.fences import take_libraries
from twostroke.backends.cpu import library
take_libraries(Path(sys.argv[1]))
print(library.library_path(sys.argv[2]).parent, flush=True)
library.load_library(sys.argv[2])
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


SIDES = thinned(("start", "end"), "sides", 1 if TIER.quick else 2)
CHOSEN = thinned(GRIDS, "fences", 2 if TIER.quick else len(GRIDS))
"""A quick run takes two files of the grid and one side; the seed chooses them."""


def trapping(folder: Path) -> str:
    """Builds the level that the seed chooses, so that it traps. Returns the text that comes after the name of a
    side."""
    if TIER.quick:
        return ""
    build.build_all(folder, build.machine(), build.TRAPPING, thinned(levels()[1:] or levels(), "traps", 1))
    return f"={folder}"


def test_the_grid_between_forbidden_pages(tmp_path: Path) -> None:
    asked = [*SIDES[:-1], SIDES[-1] + trapping(tmp_path)]

    def under(side: str) -> subprocess.CompletedProcess[str]:
        return run("-m", "tests.native.fences", side, *TIER.arguments(), *CHOSEN)

    with ThreadPoolExecutor(max_workers=2) as pool:
        for result in pool.map(under, asked):
            assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


def test_libraries_of_a_folder_are_taken(tmp_path: Path) -> None:
    """This shows that the run above had the kernels that trap: a file that is no library is refused when it is
    loaded."""
    level = levels()[-1]
    (tmp_path / library.library_path(level).name).write_bytes(b"no library")
    result = run("-c", TAKEN, str(tmp_path), level)
    assert result.stdout.strip() == str(tmp_path) and "OSError" in result.stderr and result.returncode == 1


def test_one_element_too_many_is_seen() -> None:
    result = run("-c", ONE_TOO_MANY)
    assert (result.stdout.strip(), result.returncode) == ("0", -signal.SIGSEGV)
