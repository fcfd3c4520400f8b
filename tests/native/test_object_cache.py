"""The cache of compiled files: a file is compiled once, and no stale file is ever taken."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twostroke.backends.cpu import build
from twostroke.system.object_cache import ObjectCache

COMPILE = """
import sys
from pathlib import Path
log, out = Path(sys.argv[1]), Path(sys.argv[sys.argv.index("-o") + 1])
log.open("a").write("compiled\\n")
out.write_text(" ".join(sys.argv[2:4]))
sys.exit("-fail" in sys.argv)
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Headers, and a source that includes one of them, which includes another one."""
    (tmp_path / "headers" / "own").mkdir(parents=True)
    (tmp_path / "headers/own/a.h").write_text('#include "own/b.h"\n')
    (tmp_path / "headers/own/b.h").write_text("int b;\n")
    (tmp_path / "headers/own/unused.h").write_text("int c;\n")
    (tmp_path / "one.cpp").write_text('#include <stdint.h>\n  # include "own/a.h"\n')
    monkeypatch.setattr(build, "HEADERS", tmp_path / "headers")
    return tmp_path


def compiler(world: Path, version: str = "1") -> build.Compiler:
    return build.Compiler((sys.executable, "-c", COMPILE, str(world / "log")), version)


def compiled(world: Path, *flags: str, version: str = "1", cache: str = "cache") -> Path:
    job = (world / "one.cpp", flags)
    return build.compile_all(ObjectCache(world / cache), compiler(world, version), [job])[0]


def times(world: Path) -> int:
    return len((world / "log").read_text().splitlines())


def test_what_was_compiled_is_not_compiled_again(world: Path) -> None:
    first = compiled(world, "-O1")
    os.utime(first, (0, 0))
    assert compiled(world, "-O1") == first and times(world) == 1
    assert first.stat().st_mtime > 1_000_000, "a file that is used is marked as used"
    (world / "headers/own/unused.h").write_text("int d;\n")
    assert compiled(world, "-O1") == first and times(world) == 1


@pytest.mark.parametrize("change", ["source", "header", "header of a header", "flags", "order", "compiler"])
def test_a_change_of_anything_that_matters_compiles_again(change: str, world: Path) -> None:
    first = compiled(world, "-O1", "-g")
    flags, version = ["-O1", "-g"], "1"
    if change == "source":
        (world / "one.cpp").write_text('#include "own/a.h"\nint x;\n')
    elif change == "header":
        (world / "headers/own/a.h").write_text('#include "own/b.h"\nint x;\n')
    elif change == "header of a header":
        (world / "headers/own/b.h").write_text("int bb;\n")
    elif change == "flags":
        flags = ["-O1", "-g", "-Wall"]
    elif change == "order":
        flags = ["-g", "-O1"]
    else:
        version = "2"
    assert compiled(world, *flags, version=version) != first and times(world) == 2


def test_a_program_is_linked_again_when_an_object_changed(world: Path) -> None:
    cache, linker = ObjectCache(world / "cache"), compiler(world)
    objects = [compiled(world, "-O1"), compiled(world, "-O2")]
    first = build.link(cache, linker, objects, ["-s"], ".so")
    assert build.link(cache, linker, objects, ["-s"], ".so") == first and times(world) == 3
    assert build.link(cache, linker, objects[::-1], ["-s"], ".so") != first
    assert build.link(cache, linker, objects, ["-g"], ".so") != first


def test_what_failed_is_not_kept(world: Path) -> None:
    for attempt in (1, 2):
        with pytest.raises(RuntimeError, match=r"Compiling .*one.cpp"):
            compiled(world, "-fail")
        assert times(world) == attempt
        assert [path for path in (world / "cache").iterdir() if path.suffix != ".lock"] == []


def test_what_two_builds_want_is_compiled_once(world: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: compiled(world, "-O1"), range(4)))
    assert len(made) == 1 and times(world) == 1


def test_the_cache_stays_bounded_and_keeps_what_is_in_use(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    now = time.time()
    for age_h in range(1, 6):
        path = tmp_path / f"{age_h}.o"
        path.write_bytes(bytes(100))
        os.utime(path, (now - 3600 * age_h - 60, now - 3600 * age_h - 60))
    (tmp_path / "now.o").write_bytes(bytes(400))
    cache.trim(most_bytes=650)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.o", "2.o", "now.o"]
    cache.trim(most_bytes=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["now.o"]


def test_a_cache_folder_that_cannot_be_made_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.shared_cache().folder == tmp_path / "build" / "objects"


@pytest.mark.parametrize("target", build.TRIPLES)
def test_sources_are_those_of_one_architecture_and_of_one_system(target: str) -> None:
    found = build.sources(target)
    own = {"x86_64": "x86", "aarch64": "arm"}[build.architecture_of(target)]
    assert {path.relative_to(build.ROOT).parts[1] for path in found} == {"generic", own, "system"}
    assert [path.stem for path in found if path.parent.name == "system"] == [build.system_of(target)]


def test_no_source_is_left_out() -> None:
    everything = {path for target in build.TRIPLES for path in build.sources(target)}
    native = build.ROOT / "csrc"
    of_processors = (path for path in native.rglob("*.cpp") if "cuda" not in path.relative_to(native).parts)
    assert everything == set(of_processors)
