"""A quarter of a minute of tools/soak.py: mixed load at three times the capacity, and every promise that it checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.soaking.load import Tally
from tools.soaking.progress import Diary, write_json
from tools.soaking.verdict import Sample, memory_growth, verdict, warm_until

ROOT = Path(__file__).parents[3]


@pytest.mark.daily
@pytest.mark.slow
def test_a_quarter_of_a_minute_of_mixed_load_breaks_no_promise(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    command = [sys.executable, str(ROOT / "tools" / "soak.py"), "--minutes", "0.25", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    found = json.loads(out.read_text())
    assert found["broken"] == [], ended.stderr[-3000:]
    assert ended.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["soak.json"]
    assert set(found["history_fill"]) >= {"steps", "completions"} and max(found["least_fill"]) > 0
    tally = found["tally"]
    assert tally["wrong"] == 0 and tally["right"] > 0 and sum(tally["refused"].values()) > 0  # how many is speed
    assert min(tally["sent"][kind] for kind in ("abort", "malformed", "hostile", "hasty")) > 0


GOOD = {
    "minutes": 30.0,
    "tally": {"right": 1, "wrong": 0, "refused": {"queue_full": 1}, "unexpected": {}},
    "gauges_after": {"requests_running": 0.0},
    "wrong_after": 0,
    "before": {"descriptors": 8},
    "after": {"descriptors": 8},
    "memory_mb": [100.0] * 120,
    "least_fill": [place / 20 for place in range(20)] + [1.0] * 100,
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
        {"least_fill": [0.5] * 120},
        {"least_fill": [0.5] * 40 + [1.0] * 80},
        {"exit_code": 6},
        {"processes_left": 1},
    ):
        assert len(verdict(GOOD | change)) == 1, change


def test_memory_counts_once_every_history_was_full_and_replaced() -> None:
    growing = [50.0 + place for place in range(40)] + [100.0] * 80
    filled_late = GOOD | {"memory_mb": growing, "least_fill": [0.9] * 20 + [1.0] * 100}
    assert verdict(filled_late) == [] and filled_late["memory_counts_from_minute"] == 10.0
    filled_early = GOOD | {"memory_mb": growing, "least_fill": [0.9] * 5 + [1.0] * 115}
    assert verdict(filled_early) == ["memory grew by 51.5%"]
    assert warm_until([0.1, 0.5, 1.0, 1.0]) == 4 and warm_until([0.1, 0.9]) is None and warm_until([]) is None


def test_memory_growth_compares_the_ends() -> None:
    assert memory_growth([100.0] * 90) == 0.0 and memory_growth([1.0, 2.0]) == 0.0
    assert memory_growth([100.0] * 60 + [103.0] * 12) > 0.02


def test_a_diary_keeps_what_it_has_until_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "soak.json"
    out.write_text("an older one")
    with pytest.raises(RuntimeError), Diary(out) as diary:
        diary.add(0.0, Sample(90_000_000, 8, 9), {"steps": 1.0, "gaps": 0.25}, Tally())
        raise RuntimeError
    part = json.loads((tmp_path / "soak.json.part").read_text())
    assert part["memory_mb"] == [90.0] and part["least_fill"] == [0.25]
    assert part["histories_full_at_minute"] == {"steps": 0.0}
    assert "90.00 MB" in (told := capsys.readouterr().err) and "gaps 0.25" in told
    assert out.read_text() == "an older one"
    with Diary(out) as diary:
        diary.add(0.0, Sample(1, 1, 1), {}, Tally())
        write_json(out, {"minutes": 1})
    assert json.loads(out.read_text()) == {"minutes": 1} and [path.name for path in tmp_path.iterdir()] == ["soak.json"]
