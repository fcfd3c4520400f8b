"""The native build: undefined behaviour traps under the whole grid, and the levels of aarch64 compile.

On each commit the grid under traps is one of the two passes of test_fences.py.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.native.compiling import arm_levels, lightly
from tests.tiers import TIER, levels, thinned
from twostroke.backends.cpu import available_levels, best_level, better_level, build, library, require_level
from twostroke.backends.cpu.library import _SIGNATURES, LEVELS, LEVELS_OF, load_library
from twostroke.types.errors import BackendError

ROOT = Path(__file__).resolve().parents[2]

UNDER_TRAPS = """
import sys
from pathlib import Path
from twostroke.backends.cpu import library
path_of = library.library_path
trapping = {level: Path(sys.argv[1]) / path_of(level).name for level in library.LEVELS}
library.library_path = lambda level: trapping[level] if trapping[level].is_file() else path_of(level)
import pytest
from tests import tiers
tiers.available_levels = lambda: [level for level, path in trapping.items() if path.is_file()]
from tests.native.some_cases import SomeCases
from tests.ops.native import Answers
Answers.checked = False
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[SomeCases("traps")]))
"""
GRIDS = (
    ("cases", "attention/attention", "attention/latent", "products/experts"),
    ("products/linear", "products/feed_forward", "products/stored"),
)


@pytest.mark.daily
@pytest.mark.slow
def test_no_undefined_behaviour_on_the_grid(tmp_path: Path) -> None:
    """A build that traps (SIGILL) on undefined behaviour runs the grid of odd sizes, with operands as in an engine. It
    runs at a level that the seed chooses and at the generic one."""
    needed = {*thinned(levels()[1:] or levels(), "traps", 1), "generic"}
    made = build.build_all(tmp_path, build.machine(), build.TRAPPING, sorted(needed))
    assert [path.stat().st_size > 10_000 for path in made] == [True] * len(made)

    def run(names: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        places = [Path("tests/ops", name) for name in names]
        files = [str(place.with_name(f"test_{place.name}_native.py")) for place in places]
        command = [sys.executable, "-c", UNDER_TRAPS, str(tmp_path), *TIER.arguments(), *files]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)

    with ThreadPoolExecutor(max_workers=2) as pool:
        for result in pool.map(run, GRIDS):
            assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


def test_traps_do_trap(tmp_path: Path) -> None:
    """The flags above work: a signed overflow ends the process."""
    source = tmp_path / "overflow.c"  # in C, because in C++ its library would be built first, for a minute
    text = "int main(int count, char** names) { return 2147483647 + count == 5 || !names; }\n"
    source.write_text(text)
    cpp, flags = build.zig(), ("-O1", *build.TRAPPING)
    compiler = build.Compiler((*cpp.command[:-1], "cc"), f"{cpp.version} cc")

    def make(made: Path) -> None:
        compiler.run([*flags, str(source), "-o", str(made)])

    overflow = build.shared_cache().get(".program", (compiler.version, *flags, text), make)
    assert subprocess.run([str(overflow)], check=False).returncode < 0


@pytest.mark.slow
def test_levels_compile_for_aarch64(tmp_path: Path) -> None:
    """The aarch64 libraries have every function of the ABI. They are compiled here; test_arm_levels.py runs the
    sources."""
    made = build.build_all(tmp_path, "aarch64", lightly(), arm_levels())
    assert made == [build.library_in(tmp_path, level) for level in arm_levels()]
    for path in made:
        content = path.read_bytes()
        assert content[:4] == b"\x7fELF" and struct.unpack_from("<H", content, 18)[0] == 183
        assert all(name.encode() + b"\0" in content for name in _SIGNATURES)


def test_what_is_built_is_what_is_looked_for() -> None:
    assert {machine: tuple(levels) for machine, levels in build.LEVELS.items()} == LEVELS_OF
    assert LEVELS == LEVELS_OF[build.machine()]


def test_another_architecture_has_levels_that_this_one_refuses() -> None:
    other = next(level for levels in LEVELS_OF.values() for level in levels if level not in LEVELS)
    with pytest.raises(BackendError, match=f"no kernels of level {other}"):
        load_library(other)


def test_the_build_and_the_package_find_the_same_levels() -> None:
    assert build.runnable_levels() == library.runnable_levels()


@pytest.mark.parametrize(
    ("which", "there", "chosen"),
    [
        ("all", (), LEVELS_OF["x86_64"]),
        ("runnable", (), ("generic", "avx2")),
        ("generic", ("avx2",), ("generic",)),
        ("best", (), ("avx2",)),
        ("best", ("generic", "amx"), ("generic", "avx2", "amx")),
    ],
)
def test_an_editable_installation_builds_the_best_level_and_leaves_none_behind(
    which: str, there: tuple[str, ...], chosen: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "runnable_levels", lambda: ["generic", "avx2"])
    for level in there:
        build.library_in(tmp_path, level).touch()
    assert build.levels_for(which, tmp_path, "x86_64") == list(chosen)


def only(levels: tuple[str, ...], runs: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that has only these levels, on a CPU that runs others."""
    places = {level: library.library_path(level) for level in levels}
    monkeypatch.setattr(library, "library_path", lambda level: places.get(level, folder / level))
    monkeypatch.setattr(library, "runnable_levels", lambda: list(runs))


def test_a_level_that_is_not_built_is_the_next_lower_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = available_levels()[-1]
    lower, higher = LEVELS[0], (*LEVELS, "next")[LEVELS.index(best) + 1]
    only((best,), (lower, best, higher), tmp_path, monkeypatch)
    assert available_levels() == [best] and (best_level(), better_level()) == (best, higher)
    require_level(best)
    if lower != best:
        monkeypatch.setattr(library, "load_library", load_library.__wrapped__)  # another test may have loaded it
        with pytest.raises(BackendError, match=f"kernels for {lower} are missing"):
            require_level(lower)
    only((best,), (lower, best), tmp_path, monkeypatch)
    assert better_level() is None


def test_a_package_without_a_level_for_this_cpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only((), LEVELS[:1], tmp_path, monkeypatch)
    (tmp_path / "built").touch()
    monkeypatch.setattr(library, "library_path", lambda level: tmp_path / ("built" if level == LEVELS[-1] else level))
    with pytest.raises(BackendError, match="No kernels for this CPU are built"):
        best_level()


def test_what_is_asked_before_a_level_is_chosen_is_compiled_for_every_cpu() -> None:
    units = {unit.name: unit for unit in build.sources("x86_64")}
    asked = [name for name in units if name in (*build.ANY_CPU, "rope.cpp")]
    flags = {name: build.unit_flags("x86_64", units[name], "amx") for name in asked}
    assert {"level.cpp", "settle.cpp", "linux.cpp"} < set(flags)
    assert all(("-mcpu=x86_64" in flags[name]) == (name in build.ANY_CPU) for name in flags)
    assert all("-DTS_LEVEL_AVX512" in each for each in flags.values())
