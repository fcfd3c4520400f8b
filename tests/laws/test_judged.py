"""What a judge said or made is taken from the store only where everything that decides it is the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import judged, kept, private_cache
from tests.models.families import stored
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


class Maker(Judge):
    """Writes a file of a folder, and counts how often it is asked."""

    def write(self, folder: Path) -> dict[str, Any]:
        (folder / "inner").mkdir()
        (folder / "inner/file").write_bytes(bytes([self.says]))
        return {"numbers": np.array([self()]), "text": kept.text({"said": self.says})}


def test_what_a_judge_made_is_made_once_for_each_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_folder", lambda: tmp_path / "kept")
    monkeypatch.setattr(judged.metadata, "version", lambda name: "1")
    maker, other = Maker(3), Maker(5)
    for number in range(2):
        found = kept.made(["a", 1], maker.write)
        found.unpack(tmp_path / str(number))
        assert (tmp_path / str(number) / "inner/file").read_bytes() == b"\3"
        assert found.answers()["numbers"].tolist() == [3]
        assert kept.value_of(found.answers()["text"]) == {"said": 3}
    assert maker.asked == 1
    for facts in (["a", 2], ["a"], ["a", 1, tmp_path / "0/inner/file"]):
        assert kept.made(facts, other.write).answers()["numbers"].tolist() == [5]
    (tmp_path / "0/inner/file").write_bytes(b"changed")
    kept.made(["a", 1, tmp_path / "0/inner/file"], other.write)
    monkeypatch.setattr(judged.metadata, "version", lambda name: "2")
    kept.made(["a", 1], other.write)
    assert other.asked == 5, "another question, another content of a file, another version of a judge"


def test_a_judge_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_folder", lambda: tmp_path)

    def fail(folder: Path) -> dict[str, Any]:
        raise OSError("the judge")

    with pytest.raises(OSError, match="the judge"):
        kept.made(["a"], fail)
    assert kept.made(["a"], Maker(3).write).answers()["numbers"].tolist() == [3]


def test_a_daily_run_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "TIER", Tier())
    users = kept._folder()
    monkeypatch.setattr(kept, "TIER", Tier(daily=True))
    assert kept._folder() != users and kept._folder().parent == Path(os.environ[private_cache.RUN_FOLDER])


def test_configs_of_tiny_checkpoints_are_those_of_their_sources() -> None:
    """Otherwise each process of each run imports the judge to make them."""
    for name in ("families", "variants"):
        assert judged.is_current(name, stored.facts(), stored.FILE), (
            f"{name} of tests/models/families/configs.json: pytest --write-judged tests/laws/test_judged.py"
        )


def test_words_about_code_are_no_fact_and_code_is(tmp_path: Path) -> None:
    source = tmp_path / "source.py"

    def code(text: str) -> str:
        source.write_text(text)
        return judged.code_of(source)

    plain = code('"""One."""\nX = 1\n"""What\nX is."""\n\n\ndef f():\n    """Two."""\n    # three\n    return "a\\n"\n')
    assert plain == code('X = 1\ndef f():\n    return "a\\n"\n')
    assert len({plain, code("X = 2\n"), code('X = 1\ndef f():\n    return "a"\n'), code("X = 1  # why\n")}) == 4


def test_what_is_stored_has_one_line_for_each_question() -> None:
    lines = judged.FILE.read_text().splitlines()
    assert list(json.loads(judged.FILE.read_text())) == sorted(json.loads(judged.FILE.read_text()))
    assert (lines[0], lines[-1]) == ("{", "}") and len(lines) == 2 + len(json.loads(judged.FILE.read_text()))
