"""Trace parsers: what they read, and the line that an error names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.lab.workload.arrange import Arrangement, arranged, at_times
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.trace_error import TraceError
from twostroke.lab.workload.traces import format_of, parse_trace
from twostroke.types.errors import ConfigError

MOONCAKE = '{"timestamp": %s, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]}'
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)


def talk(*turns: tuple[str, str]) -> dict[str, object]:
    return {"id": "x", "conversations": [{"from": who, "value": said} for who, said in turns]}


def test_mooncake() -> None:
    found = parse_trace("\n".join([MOONCAKE % 3000, "", MOONCAKE % 1000]))
    assert [request.arrival_s for request in found] == [0.0, 2.0]
    assert found[0] == WorkloadRequest(0.0, 1100, 52, (46, 47, 48), 512)


def test_azure_of_both_years() -> None:
    found = parse_trace(AZURE)
    assert [(request.prompt_tokens, request.output_tokens) for request in found] == [(374, 44), (396, 109)]
    assert found[0].arrival_s == 0 and found[1].arrival_s == pytest.approx(4.314579, abs=1e-4)
    later = parse_trace(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,2162,5\r\n"
        "2024-05-10 00:00:00.017335+00:00,2399,0\r\n"
    )
    assert later[1].arrival_s == pytest.approx(0.007405, abs=1e-6) and later[1].output_tokens == 1


def test_sharegpt_as_an_array_and_by_line() -> None:
    entries = [
        talk(("human", "What is prefill?"), ("gpt", "It reads the prompt.")),
        talk(("gpt", "Hello"), ("human", "How\u2028many?"), ("gpt", "Two phases")),
        talk(("human", "alone")),
    ]
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    found = parse_trace(text, count_tokens=lambda said: len(said.split()))
    assert [(r.prompt_tokens, r.output_tokens, r.text) for r in found] == [
        (3, 4, "What is prefill?"),
        (2, 2, "How\u2028many?"),
    ]
    lines = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    assert parse_trace(lines, count_tokens=lambda said: len(said.split())) == found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (MOONCAKE % 0 + "\n" + (MOONCAKE % 1)[:-5], 2, "not JSON"),
        (MOONCAKE % 0 + '\n\n{"timestamp": 1, "input_length": 2}', 3, "output_length is missing"),
        (MOONCAKE % '"soon"', 1, "timestamp"),
        (MOONCAKE % "NaN", 1, "timestamp"),
        (MOONCAKE % "1" + "\n[1]", 2, "a list"),
        ('{"timestamp": 0, "input_length": -4, "output_length": 1}', 1, "below zero"),
        ('{"timestamp": 0, "input_length": 4.5, "output_length": 1}', 1, "input_length is 4.5"),
        ('{"timestamp": 0, "input_length": Infinity, "output_length": 1}', 1, "infinity"),
        ('{"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": ["a"]}', 1, "hash_ids"),
        ('{"timestamp": 0, "input_length": 4, "output_length": true}', 1, "output_length"),
        (AZURE + "yesterday,3,4\n", 4, "yesterday"),
        (AZURE + "2023-11-16 18:15:50,three,4\n", 4, "ContextTokens"),
        (AZURE + "2023-11-16 18:15:50,3\n", 4, "GeneratedTokens is missing"),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:15:50,3\n", 1, "GeneratedTokens is missing"),
        ("hello\n", 1, "no trace"),
        ("", 1, "no trace"),
        ('[\n{"conversations": []},\n{"conversations": 3}\n]', 3, "no list"),
        ('[\n{"conversations": []},\n3\n]', 3, "a int"),
        ('[\n{"conversations": [{"from": "human"}]}\n]', 2, "from and value"),
        ('[\n{"conversations": []}\n{"conversations": []}\n]', 3, "comma"),
        ('[\n{"conversations": []},\n', 3, ""),
        ('[\n{"conversations": [}\n]', 2, "not JSON"),
    ],
)
def test_a_broken_line_is_named(text: str, line: int, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_trace(text, "trace.json")
    assert f"trace.json, line {line}:" in caught.value.what and words in caught.value.what.replace("column ", "")
    assert caught.value.fix


@pytest.mark.parametrize("text", ["[]", '[{"conversations": []}]', "TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_an_empty_trace_is_an_error(text: str) -> None:
    with pytest.raises(TraceError, match="there is no"):
        parse_trace(text)


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    for text in ("[" * 200_000, '{"timestamp": ' + "[" * 200_000):
        with pytest.raises(TraceError):
            parse_trace(text)


def test_an_unknown_format_names_the_others() -> None:
    with pytest.raises(ConfigError, match="mooncake"):
        parse_trace(AZURE, form="splitwise")


@given(st.text(max_size=200), st.sampled_from(["", "[", "{", "TIMESTAMP,ContextTokens,GeneratedTokens\n"]))
def test_any_text_is_read_or_refused(text: str, opening: str) -> None:
    try:
        form = format_of(opening + text)
        assert parse_trace(opening + text, form=form)
    except TraceError as error:
        assert error.what


def test_arrangements() -> None:
    requests = [WorkloadRequest(float(at), 1000, 100, (1, 2), 512, "x" * 4000) for at in range(10)]
    made = arranged(requests, Arrangement(2.0, 4, 0.5, 400, 20, 100))
    assert [request.arrival_s for request in made] == [0.0, 0.5, 1.0, 1.5]
    assert {(r.prompt_tokens, r.output_tokens, r.block_ids, len(r.text or "")) for r in made} == {(80, 20, (1,), 320)}
    assert arranged(requests, Arrangement()) == requests
    assert [request.arrival_s for request in at_times(requests, [5.0, 7.0])] == [5.0, 7.0]
    for wrong in (Arrangement(rate_scale=0), Arrangement(tokens_scale=-1)):
        with pytest.raises(ConfigError, match="above 0"):
            arranged(requests, wrong)
