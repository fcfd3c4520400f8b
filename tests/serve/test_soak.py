"""Half a minute of tools/soak.py: mixed load at three times the capacity, and every promise that it checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.soaking.verdict import memory_growth, verdict

ROOT = Path(__file__).parents[2]


def test_half_a_minute_of_mixed_load_breaks_no_promise(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    command = [sys.executable, str(ROOT / "tools" / "soak.py"), "--minutes", "0.5", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    found = json.loads(out.read_text())
    assert found["broken"] == [], ended.stderr[-3000:]
    assert ended.returncode == 0
    tally = found["tally"]
    assert tally["wrong"] == 0 and tally["right"] > 50 and sum(tally["refused"].values()) > 50
    assert min(tally["sent"][kind] for kind in ("abort", "malformed", "hostile", "hasty")) > 10


GOOD = {
    "minutes": 30.0,
    "tally": {"right": 1, "wrong": 0, "refused": {"queue_full": 1}, "unexpected": {}},
    "gauges_after": {"requests_running": 0.0},
    "wrong_after": 0,
    "before": {"descriptors": 8},
    "after": {"descriptors": 8},
    "memory_mb": [100.0] * 120,
    "exit_code": 0,
    "processes_left": 0,
}


def test_the_verdict_sees_each_broken_promise() -> None:
    assert verdict(dict(GOOD)) == []
    for change in (
        {"tally": GOOD["tally"] | {"wrong": 1}},  # type: ignore[operator]
        {"tally": GOOD["tally"] | {"right": 0}},  # type: ignore[operator]
        {"tally": GOOD["tally"] | {"refused": {}}},  # type: ignore[operator]
        {"tally": GOOD["tally"] | {"unexpected": {"500 internal_error": 1}}},  # type: ignore[operator]
        {"wrong_after": 1},
        {"gauges_after": {"kv_pages_used": 1.0}},
        {"after": {"descriptors": 20}},
        {"memory_mb": [100.0 + place / 10 for place in range(120)]},
        {"exit_code": 6},
        {"processes_left": 1},
    ):
        assert len(verdict(GOOD | change)) == 1, change


def test_memory_growth_looks_behind_the_warm_up() -> None:
    assert memory_growth([50.0] * 30 + [100.0] * 90) == 0.0
    assert memory_growth([100.0] * 90 + [103.0] * 30) > 0.02
