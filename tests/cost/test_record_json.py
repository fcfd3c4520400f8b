"""Records and their lines: nothing is lost on the way, and an error names a broken line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from twostroke.cost.history.record import RequestRecord, SequenceRecord, StepRecord
from twostroke.cost.history.record_json import Record, header_line, read_lines, record_line
from twostroke.cost.shape import Bound, PartPrediction, Segment, StepPrediction
from twostroke.cost.work import Work
from twostroke.types.errors import ConfigError
from twostroke.types.plan import Role

COUNTS = st.integers(0, 10**9)
SECONDS = st.floats(0, 1e9)
NAMES = st.text(max_size=20)
WORKS = st.builds(Work, COUNTS, COUNTS, COUNTS, COUNTS)
PARTS = st.builds(PartPrediction, NAMES, SECONDS, WORKS, st.sampled_from(Bound))
SEGMENTS = st.builds(Segment, COUNTS, COUNTS, st.booleans(), st.sampled_from(Role), COUNTS, COUNTS)
SEQUENCES = st.builds(SequenceRecord, NAMES, SEGMENTS, COUNTS, COUNTS, COUNTS)
STEPS = st.builds(
    StepRecord,
    COUNTS,
    SECONDS,
    SECONDS,
    SECONDS,
    SECONDS,
    st.lists(SEQUENCES, max_size=4).map(tuple),
    st.lists(NAMES, max_size=3).map(tuple),
    COUNTS,
    st.none() | st.builds(StepPrediction, st.lists(PARTS, max_size=4).map(tuple)),
)
REQUESTS = st.builds(
    RequestRecord, NAMES, SECONDS, SECONDS, COUNTS, COUNTS, COUNTS, COUNTS, st.dictionaries(NAMES, SECONDS, max_size=4)
)
STEP = StepRecord(1, 0.5, 0.75, 0.125, 0.0625, (SequenceRecord("a/0", Segment.prefill(0, 8, True), 0),))


@given(st.lists(STEPS | REQUESTS, max_size=6))
def test_what_is_written_is_read(records: list[Record]) -> None:
    lines = [header_line(), *map(record_line, records)]
    assert all(line.count("\n") == 1 for line in lines)
    assert list(read_lines(lines, "trace")) == records


def test_unknown_keys_and_columns_are_passed_over() -> None:
    value = json.loads(record_line(STEP))
    value["new"] = 1
    value["sequences"][0].append("more")
    assert list(read_lines([header_line(), json.dumps(value)], "trace")) == [STEP]


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_earlier_version_is_read_and_one_of_this_version_must_have_its_columns(version: int) -> None:
    """Engines of those versions decoded one row at a time, and the last row of a prompt came after no output."""
    old_header = f'{{"twostroke_steps": {version}, "sequence_columns": [], "part_columns": []}}'
    parts = (
        SequenceRecord("a/0", Segment.prefill(0, 8, True), 0),
        SequenceRecord("b/0", Segment.prefill(7, 1, True), 0),
        SequenceRecord("c/0", Segment.prefill(9, 1, False), 3, 1),
        SequenceRecord("d/0", Segment.decode(9), 3),
    )
    step = replace(STEP, sequences=parts)
    value = json.loads(record_line(step))
    assert json.loads(header_line())["sequence_columns"][-4:] == ["scored", "role", "drafts", "accepted"]
    for row in value["sequences"]:
        assert row[-4] == 0
        del row[{1: 6, 2: 7}[version] :]
    old = json.dumps(value)
    assert list(read_lines([old_header, old], "trace")) == [step]
    with pytest.raises(ConfigError, match="line 2") as caught:
        list(read_lines([header_line(), old], "trace"))
    assert f"{5 + version} values, not 10" in str(caught.value)
    for row in value["sequences"]:
        row.append("a later column, which this version does not know")
    assert list(read_lines([old_header, json.dumps(value)], "trace")) == [step]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 3"),
        ("7", "not an object"),
        ("{}", "neither"),
        ('{"step": 1}', "'begin_s' is missing"),
        ('{"step": -1, "sequences": []}', "'step'"),
        (record_line(STEP).replace('"model_s":0.125', '"model_s":"x"'), "'model_s'"),
        (record_line(STEP).replace('"model_s":0.125', '"model_s":NaN'), "'model_s'"),
        (record_line(STEP).replace("[[", "[").replace("]]", "]"), "sequences"),
        (record_line(STEP).replace("true,0,0,0,", 'true,0,0,"x",'), "'scored'"),
        (record_line(STEP).replace('"prefill"', '"neither"'), "'neither'"),
        ('{"request": "a/0", "arrival_s": 1}', "'finished_s' is missing"),
    ],
)
def test_a_broken_line_is_named(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(read_lines([header_line(), record_line(STEP), line], "trace"))
    assert said in str(caught.value) and "trace, line 3" in str(caught.value)


VERSIONS_THAT_ARE_NONE = [f'{{"twostroke_steps": {version}}}' for version in ("4", "0", "true", "[1]", '"1"')]


@pytest.mark.parametrize("first", ["", "{}", "[]", *VERSIONS_THAT_ARE_NONE, record_line(STEP)])
def test_another_file_is_refused(first: str) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        list(read_lines([first], "trace"))
    with pytest.raises(ConfigError, match="empty"):
        list(read_lines([], "trace"))
