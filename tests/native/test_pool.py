"""The thread pool alone: each task is done once, whichever thread is late, and the thread sanitizer finds nothing.

The sanitizer needs a compiler that has it: the system's, or else ziglang's, which builds its library first (a minute).
Where neither has it, the tests that need it are skipped, with the compiler's message.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.native.compiling import system_compilers
from twostroke.backends.cpu import build

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "csrc" / f"{name}.cpp" for name in ("generic/machine/pool", "generic/machine/context")]
SOURCES += [ROOT / "csrc/generic/machine/level.cpp", ROOT / "csrc/system/linux.cpp"]
DRIVER = ROOT / "tests/native/pool.cpp"
FLAGS = ["-std=c++17", "-O1", "-g", "-DTS_LEVEL_GENERIC", "-I", str(ROOT / "csrc/include")]
SANITIZED = ["-fsanitize=thread", "-DTS_TEST_DELAYS"]
HANGS_S = 120


def compilers() -> Iterator[build.Compiler]:
    """Those of the system, and the one of ziglang."""
    yield from system_compilers()
    yield build.zig()


def compiled(flags: tuple[str, ...], pool: Path = SOURCES[0], what: str = "many") -> Path:
    """The driver with these flags, by the first compiler that can run what it makes. Skips where none can. A program
    that was made of the same sources, flags and compiler before comes from the cache of compiled files.

    what: tried once; "" tries nothing but a word that the driver does not know.
    """
    said = ""
    sources = [pool, *SOURCES[1:], DRIVER]
    contents = [content for source in sources for content in build.with_headers(source)]
    for compiler in compilers():
        asked = [*FLAGS, *flags, *map(str, sources), "-lpthread"]

        def make(made: Path, compiler: build.Compiler = compiler, asked: list[str] = asked) -> None:
            compiler.run([*asked, "-o", str(made)])

        try:
            inputs = (compiler.version, *FLAGS, *flags, "", *contents)
            program = build.shared_cache().get(".program", inputs, make)
        except RuntimeError as error:
            said = str(error)[-2000:]
            continue
        tried = run(program, what, 2, 1)
        if not tried.returncode or "no such test" in tried.stderr:
            return program
        said = tried.stderr[-2000:]
    pytest.skip(f"no compiler here makes a program with {' '.join(flags) or 'threads'}: {said}")


def run(program: Path, what: str, threads: int, jobs: int) -> subprocess.CompletedProcess[str]:
    command = [str(program), what, str(threads), str(jobs)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)


@cache
def plain() -> Path:
    return compiled(())


@cache
def sanitized() -> Path:
    return compiled(tuple(SANITIZED))


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """A program on each core that never rests."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for program in programs:
        program.kill()
        program.wait()


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_a_job_ends_without_threads_that_have_no_task(threads: int) -> None:
    """All workers are stopped for good while jobs run. In the middle they come back, late, and must do no harm.

    A pool that waits for every worker to report never ends here.
    """
    assert run(plain(), "stopped", threads, 2000).returncode == 0


@pytest.mark.parametrize("what", ["many", "nested", "create"])
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_every_task_is_done_once(what: str, threads: int) -> None:
    """Jobs of all sizes come in a row, jobs run inside tasks, and pools are made and ended at once."""
    result = run(plain(), what, threads, 300 if what == "create" else 20_000)
    assert result.returncode == 0, result.stderr


def test_many_more_threads_than_cores_do_every_task_once() -> None:
    """A job uses one of the 64 threads for each core, whichever threads are awake."""
    for what, jobs in (("many", 5000), ("nested", 500), ("stopped", 500), ("create", 5)):
        result = run(plain(), what, 64, jobs)
        assert result.returncode == 0, (what, result.stderr)


def test_short_jobs_beside_busy_loops(busy_cores: None) -> None:
    for threads in (2, 4):
        result = run(plain(), "many", threads, 5000)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("what", ["many", "nested", "create"])
@pytest.mark.parametrize("threads", [2, 4])
def test_the_thread_sanitizer_has_nothing_to_say(what: str, threads: int) -> None:
    """There are delays wherever a thread may lose its core between two steps of the pool."""
    result = run(sanitized(), what, threads, 100 if what == "create" else 2000)
    assert result.returncode == 0, result.stderr[:3000]


@pytest.mark.parametrize(
    ("ordered", "count"),
    [
        ("range, rest, std::memory_order_acquire", 1),  # taking a task
        ("fetch_add(done, std::memory_order_release)", 1),  # finishing tasks
        ("range_of(begin, end), std::memory_order_release", 1),  # handing tasks out
    ],
)
def test_the_thread_sanitizer_notices_a_missing_order(ordered: str, count: int, tmp_path: Path) -> None:
    source = SOURCES[0].read_text()
    assert source.count(ordered) == count
    weak = tmp_path / "pool.cpp"
    weak.write_text(source.replace(ordered, ordered.replace("acquire", "relaxed").replace("release", "relaxed")))
    sanitized()  # or the test is skipped
    result = run(compiled(tuple(SANITIZED), weak, what=""), "many", 2, 2000)
    assert result.returncode != 0 and "data race" in result.stderr
