"""A batch of ten thousand lines in a process that is killed again and again. No line is lost or written twice, and its
memory is a few times that of its files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serve.batch_process import WIDTH, lines
from tests.serve.harness import wait_until

KILLED_AT = (1, 700, 3000, 2)
"""The calls that a process answers before it is killed."""
FILES_IN_MEMORY = 16
"""Python objects of a line take several times its bytes."""


def process_of(folder: Path, count: int, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.serve.batch_process", str(folder), str(count), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed(process: subprocess.Popen[str], when: Callable[[], bool]) -> None:
    wait_until(when, "the moment to kill it")
    process.send_signal(signal.SIGKILL)
    process.communicate()


def calls(folder: Path) -> int:
    found = folder / "calls"
    return found.stat().st_size if found.exists() else 0


def run(folder: Path, count: int, killed_at: tuple[int, ...]) -> dict[str, Any]:
    for most in killed_at:
        goal = calls(folder) + most
        killed(process_of(folder, count, most), lambda goal=goal: calls(folder) == goal)  # type: ignore[misc]
    killed(process_of(folder, count, count, "saved"), lambda: (folder / "saved").exists())
    ended = process_of(folder, count, count)
    output, _ = ended.communicate()
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_line_is_lost_or_twice_whenever_the_process_is_killed(count: int, tmp_path: Path) -> None:
    killed_at = KILLED_AT if count > sum(KILLED_AT) else (1, 20, 2)
    found = run(tmp_path, count, killed_at)
    assert found["status"] == "completed"
    contents = sorted((tmp_path / "contents").rglob("*.bin"), key=lambda path: path.stat().st_mtime_ns)
    source, output = (path.read_bytes() for path in contents)  # there is one output file, although it was written twice
    assert source == lines(count)
    made = [json.loads(line) for line in output.splitlines()]
    assert [each["custom_id"] for each in made] == [f"c{n}" for n in range(count)]
    answers = [each["response"]["body"]["choices"][0]["message"]["content"] for each in made]
    assert answers == [f"question {n}" for n in range(count)]
    assert count <= calls(tmp_path) <= count + len(killed_at) * WIDTH, "a line that is done is not computed again"
    assert not list((tmp_path / "journals").iterdir())
    if count > 1000:
        assert found["peak"] < FILES_IN_MEMORY * (len(source) + len(output)), found["peak"]
