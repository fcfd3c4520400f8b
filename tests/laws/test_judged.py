"""A judge's answer is taken from the store only where everything that decides it is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import judged
from tests.tiers import Tier


class Judge:
    """Counts how often it is asked."""

    def __init__(self, says: Any) -> None:
        self.says, self.asked = says, 0

    def __call__(self) -> Any:
        self.asked += 1
        return self.says


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one entry."""
    monkeypatch.setattr(judged, "FILE", tmp_path / "judged.json")
    monkeypatch.setattr(judged, "TIER", Tier(writes=True))
    assert judged.said("a question", (1, "x"), Judge([3, 4])) == [3, 4]
    monkeypatch.setattr(judged, "TIER", Tier())
    return tmp_path / "judged.json"


def test_the_same_question_asks_nobody_and_another_one_asks_the_judge(store: Path, tmp_path: Path) -> None:
    judge, before = Judge([5]), store.read_bytes()
    assert judged.said("a question", (1, "x"), judge) == [3, 4] and judge.asked == 0
    assert judged.said("another one", (1, "x"), judge) == [5] and judge.asked == 1
    for facts in ((2, "x"), (1, "y"), (1,), ("1", "x")):
        assert judged.said("a question", facts, judge) == [5], facts
    assert judge.asked == 5 and store.read_bytes() == before
    source = tmp_path / "source.py"
    digests = []
    for text in ("a", "b", "a"):
        source.write_text(text)
        digests.append(judged.digest_of([source]))
    assert digests[0] == digests[2] != digests[1]


def test_another_version_of_a_judge_is_asked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged.metadata, "version", lambda name: "another")
    assert judged.said("a question", (1, "x"), Judge([5])) == [5]


def test_a_daily_run_asks_the_judge_and_compares(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "TIER", Tier(daily=True))
    judge = Judge([3, 4])
    assert judged.said("a question", (1, "x"), judge) == [3, 4] and judge.asked == 1
    with pytest.raises(AssertionError, match="says something else than is stored of a question"):
        judged.said("a question", (1, "x"), Judge([3, 5]))
    assert judged.said("a question", (1, "x"), Judge([3, 5]), lambda one, other: one[0] == other[0]) == [3, 5]


def test_what_is_stored_has_one_line_for_each_question() -> None:
    lines = judged.FILE.read_text().splitlines()
    assert list(json.loads(judged.FILE.read_text())) == sorted(json.loads(judged.FILE.read_text()))
    assert (lines[0], lines[-1]) == ("{", "}") and len(lines) == 2 + len(json.loads(judged.FILE.read_text()))
