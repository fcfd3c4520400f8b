"""Simulates deaths, cuts, hangs and lost pages over all schedules, by the test that counts streams."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.case import Note, Outcome

ROOT = Path(__file__).resolve().parents[2]
TEST, BLOCKS, SCHEDULES = "tests/fleet/test_ten_thousand.py", 20, 10_000


@dataclass(frozen=True)
class KillsInAWorld:
    """A block of schedules fails at the first stream that is lost, sent twice or changed."""

    name: str = "kills"
    goal: str = f"no stream is lost, told twice or changed in {SCHEDULES:,} schedules"
    minutes: float = 1.2

    def run(self, note: Note) -> Outcome:
        """See Case."""
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", TEST]
        note(" ".join(command))
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        last = ended.stdout.strip().splitlines()[-1]
        passed, failed = _count(last, "passed"), _count(last, "failed") + _count(last, "error")
        figures = {"blocks_passed": float(passed), "blocks_failed": float(failed)}
        figures["schedules"] = float(SCHEDULES // BLOCKS * passed)
        return Outcome(figures, ended.returncode == 0 and passed == BLOCKS)


def _count(summary: str, word: str) -> int:
    words = summary.replace(",", " ").split()
    places = [place for place, each in enumerate(words) if each.startswith(word)]
    return int(words[places[0] - 1]) if places else 0
