"""`--trace FILE`: the file is whole or absent, and a full disk ends the file but not the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from twostroke.cost.history.record import RequestRecord, SequenceRecord, StepRecord
from twostroke.cost.history.record_json import read_lines
from twostroke.cost.shape import Segment
from twostroke.engine.record_file import RecordFile
from twostroke.types.errors import ConfigError

STEP = StepRecord(1, 0.5, 0.75, 0.125, 0.0625, (SequenceRecord("a/0", Segment.prefill(0, 8, True), 0),))
END = RequestRecord("a/0", 0.0, 1.0, 8, 1, parts_s={"queue_s": 1.0})


def silent(sentence: str) -> None:
    raise AssertionError(sentence)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    file = RecordFile(path, "this machine", silent)
    for record in (STEP, END, STEP):
        file.write(record)
    assert not path.exists()
    file.close()
    file.close()
    assert [each.name for each in tmp_path.iterdir()] == ["steps.jsonl"]
    assert list(read_lines(path.read_text().splitlines(), "")) == [STEP, END, STEP]


def test_a_crash_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    first = RecordFile(path, "", silent)
    first.write(STEP)
    first.close()
    good = path.read_bytes()
    crashed = RecordFile(path, "", silent)
    crashed.write(END)
    del crashed
    assert path.read_bytes() == good


class Full:
    """A file on a disk that is full."""

    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text("good")
    told: list[str] = []
    file = RecordFile(path, "", told.append)
    file._file = Full()  # type: ignore[assignment]
    for _ in range(3):
        file.write(STEP)
    file.close()
    assert len(told) == 1 and "No space left" in told[0]
    assert path.read_text() == "good"


@pytest.mark.parametrize("place", ["no/such/folder/steps.jsonl", "."])
def test_a_place_that_takes_no_file_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        RecordFile(tmp_path / place, "", silent)
    assert list(tmp_path.iterdir()) == []
