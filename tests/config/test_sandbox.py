"""What a sandbox may refuse: calls that only make things better are left out, and a lower limit stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from twostroke.assembly.settings.env import read_machine
from twostroke.system import here, linux

LOW_BYTES = 700 * 1024**2
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
from twostroke.system import here
here.limit_memory(2 * int(sys.argv[1]))
print(*resource.getrlimit(resource.RLIMIT_AS))
here.limit_memory(int(sys.argv[1]) // 2)
print(*resource.getrlimit(resource.RLIMIT_AS))
"""


def refuses(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_where_the_affinity_is_not_told_a_machine_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", refuses)
    monkeypatch.setattr(os, "sched_setaffinity", refuses)
    assert linux.allowed_cpus() is None
    assert read_machine().cores >= 1
    begun = []
    with linux.beginning_on({0}):
        begun.append("a thread")
    assert begun


def test_a_process_that_cannot_stand_back_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "nice", refuses)
    here.stand_back(10)


def test_a_lower_limit_of_memory_stays() -> None:
    command = [sys.executable, "-c", LIMITED, str(LOW_BYTES)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert told == [str(LOW_BYTES)] * 2 + [str(LOW_BYTES // 2)] * 2
