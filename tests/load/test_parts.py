"""The load generator's parts without sockets: events, answers, prompts, addresses, the drive, pictures."""

from __future__ import annotations

import asyncio
import json
import os
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.load.fake_openai import chunk, event, usage_of
from tests.load.virtual_loop import VirtualLoop
from tests.tiers import examples
from twostroke.cli.shared.output_file import check_place, place_for, write_json
from twostroke.lab.bench.load.answer import Answer, words_of
from twostroke.lab.bench.load.choose import LoadAsk, Trace, make_workload
from twostroke.lab.bench.load.client import COMPLETIONS, Asking
from twostroke.lab.bench.load.drive import Drive, Progress
from twostroke.lab.bench.load.panel import BOTTOM, LABEL_CHARACTER, LABEL_HEIGHT, TOP, Line, Panel, steps, tick
from twostroke.lab.bench.load.server import base_url
from twostroke.lab.bench.load.sse import MAX_EVENT_BYTES, EventReader
from twostroke.lab.bench.load.words import CANDIDATES, OPENING, WordList, find_words
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.errors import ConfigError

STREAM = b": ping\n\ndata: one\n\nevent: x\ndata:two\r\n\r\ndata: three\ndata: four\n\ndata: last"


@given(st.lists(st.integers(0, len(STREAM)), max_size=6).map(sorted))
def test_events_do_not_depend_on_where_bytes_are_cut(cuts: list[int]) -> None:
    reader, found = EventReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True):
        found += reader.feed(STREAM[start:end])
    assert found == [b"one", b"two", b"three\nfour"] and reader.finish() == [b"last"]
    assert reader.finish() == []


def test_an_endless_event_is_refused() -> None:
    with pytest.raises(ValueError, match="an event of more"):
        EventReader().feed(b"x" * (MAX_EVENT_BYTES + 1))


def fed(*raw: bytes) -> Answer:
    made, reader = Answer(), EventReader()
    for time_s, piece in enumerate(raw):
        for data in reader.feed(piece):
            made.event(data, float(time_s))
    return made


def test_an_answer_counts_chunks_with_text() -> None:
    made = fed(chunk(""), chunk("a"), chunk("b"), chunk(None, "stop"), event({"choices": [], "usage": usage_of(5, 2)}))
    assert (made.counts, made.times_s, made.finish()) == ([0, 1, 1, 0], [0.0, 1.0, 2.0, 3.0], "")
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (5, 2)


def test_a_server_that_counts_along_gives_tokens_of_each_chunk() -> None:
    made = fed(*(chunk("x", None, usage_of(5, total)) for total in (1, 4, 4)), chunk("", None, usage_of(5, 5)))
    assert made.counts == [1, 3, 1, 0]


def test_completions_and_reasoning_are_text_too() -> None:
    made = fed(
        event({"choices": [{"text": "a"}]}),
        event({"choices": [{"delta": {"reasoning_content": "hm"}}]}),
        event(b"[DONE]"),
    )
    assert made.counts == [1, 1] and made.finish() == ""


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ((chunk("a"),), "ended before its end"),
        (
            (chunk("a"), event({"error": {"message": "no  room", "code": 5}}), event(b"[DONE]")),
            "error in the stream: no room",
        ),
        ((event(b"{broken"), chunk("a", "stop")), "no JSON"),
        ((event(b"[1]"), chunk("a", "stop")), "no JSON"),
    ],
)
def test_an_answer_that_is_not_whole_says_why(raw: tuple[bytes, ...], words: str) -> None:
    assert words in fed(*raw).finish()


def test_long_messages_are_shortened() -> None:
    assert len(words_of({"message": "x" * 1000})) == 160 and words_of("a\n b") == "a b"


def test_bodies() -> None:
    asking = Asking("http://x/v1", "m", COMPLETIONS, True, {"top_p": 0.5, "temperature": None})
    body = json.loads(asking.body("hello", 9))
    assert body["prompt"] == "hello" and body["max_tokens"] == 9 and body["ignore_eos"] and body["top_p"] == 0.5
    assert "temperature" not in body and body["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in json.loads(Asking("http://x/v1", "m", exact=False).body("hello", 9))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://host/", "http://host/v1"),
        ("https://host/v1/", "https://host/v1"),
        ("https://host/api/v1/chat/completions", "https://host/api/v1"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_addresses(asked: str, found: str) -> None:
    assert base_url(asked) == found


@pytest.mark.parametrize("asked", ["", "ftp://host", "http://", "http://host:99999", "http://[::1", "http://h?x=1"])
def test_what_is_no_address(asked: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        base_url(asked)


def find(count_word: dict[str, int], around: int = 3) -> WordList:
    asked: list[str] = []

    async def count(text: str) -> int:
        asked.append(text)
        return around + sum(count_word.get(word, 1) for word in text.split())

    return asyncio.run(find_words(count))


def test_words_of_one_token_are_found() -> None:
    assert find({}) == WordList(tuple(CANDIDATES), 4)
    some = find(dict.fromkeys(CANDIDATES[::2], 2))
    assert set(some.words) <= set(CANDIDATES[1::2]) and len(some.words) == 12
    with pytest.raises(ConfigError, match="exact length"):
        find(dict.fromkeys(CANDIDATES[4:], 2))


def test_a_tokenizer_without_merges_gets_letters() -> None:
    async def by_character(text: str) -> int:
        return 9 + len(text)

    words = asyncio.run(find_words(by_character))
    text = words.text(WorkloadRequest(0, 77, 1), 3, 0)
    assert asyncio.run(by_character(text)) == 77 and " " not in text


@given(st.integers(1, 600), st.integers(0, 50), st.integers(0, 2**63))
def test_prompts_have_the_tokens_that_were_asked(tokens: int, fixed: int, seed: int) -> None:
    words = WordList(tuple(CANDIDATES), fixed + 1)
    made = [words.text(WorkloadRequest(0, tokens, 1), seed, index).split() for index in range(2)]
    assert all(len(each) == max(2, tokens - fixed) and each[0] == OPENING for each in made)
    if tokens > fixed + 20:
        assert made[0][:12] != made[1][:12], "no prompt is a prefix-cache hit of another"
    assert made[0] == words.text(WorkloadRequest(0, tokens, 1), seed, 0).split()


def test_equal_blocks_are_equal_text() -> None:
    words = WordList(tuple(CANDIDATES), 5)
    one, other, third = (
        words.text(WorkloadRequest(0, 100, 1, ids, 16), 1, index).split()
        for index, ids in enumerate([(1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 9, 5, 6, 7), (8, 2)])
    )
    assert one[: 1 + 48] == other[: 1 + 48] and one[1 + 48 : 1 + 64] != other[1 + 48 : 1 + 64]
    assert third[1:17] != one[1:17] and third[17:33] == one[17:33] and len(third) == 96
    assert words.text(WorkloadRequest(0, 100, 1, text="As it is"), 1, 0) == "As it is"


def driven(arrivals: list[float], answer_s: float, users: int | None, stop_s: float | None = None) -> Progress:
    """The progress of a drive in which each answer takes `answer_s` seconds of virtual time."""

    async def main() -> Progress:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        start = loop.time()

        def now_s() -> float:
            return loop.time() - start

        async def ask(index: int, request: WorkloadRequest, intended_s: float) -> Observation:
            sent_s = now_s()
            await asyncio.sleep(answer_s)
            return Observation(intended_s, sent_s, now_s())

        progress = Progress(len(arrivals))
        drive = Drive(ask, now_s, progress, stop)
        if stop_s is not None:
            loop.call_later(stop_s, stop.set)
        requests = [WorkloadRequest(arrival_s, 1, 1) for arrival_s in arrivals]
        await (drive.timetable(requests) if users is None else drive.users(requests, users))
        return progress

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_a_timetable_waits_for_no_answer() -> None:
    arrivals = [0.0, 0.01, 0.02, 0.03]
    done = driven(arrivals, 0.2, None)
    assert [seen.intended_s for seen in done.seen] == arrivals
    assert max(seen.sent_s for seen in done.seen) < min(seen.ended_s for seen in done.seen)
    assert all(seen.sent_s >= seen.intended_s for seen in done.seen)


def test_users_wait_for_their_answers() -> None:
    done = driven([0.0] * 6, 0.02, 2)
    starts = sorted(seen.sent_s for seen in done.seen)
    ends = sorted(seen.ended_s for seen in done.seen)
    assert len(done.seen) == 6 and all(starts[at + 2] >= ends[at] for at in range(4))


def test_a_stop_keeps_what_was_seen_and_gives_up_the_rest() -> None:
    done = driven([0.0, 0.0, 5.0], 0.01, None, stop_s=0.3)
    assert (len(done.seen), done.cut, done.under_way) == (2, 0, 0)
    cut = driven([0.0, 0.0], 30.0, 2, stop_s=0.05)
    assert (len(cut.seen), cut.cut, cut.under_way) == (0, 2, 0)


def test_a_failure_of_the_client_itself_ends_the_run() -> None:
    async def ask(index: int, request: WorkloadRequest, intended_s: float) -> Observation:
        raise ZeroDivisionError

    async def main() -> None:
        await Drive(ask, lambda: 0.0, Progress(1), asyncio.Event()).users([WorkloadRequest(0, 1, 1)], 1)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (LoadAsk(users=1, rate_per_s=2.0), "two kinds"),
        (LoadAsk(burstiness=0.5), "--rate"),
        (LoadAsk(rate_scale=2.0), "--trace"),
        (LoadAsk(named="calm"), "no workload"),
        (LoadAsk(named="overload", trace=Trace("", "x")), "two workloads"),
        (LoadAsk(trace=Trace("[]", "x", "tar")), "no trace format"),
    ],
)
def test_contradictions_are_named(ask: LoadAsk, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        make_workload(ask)


def test_workloads_of_a_trace() -> None:
    sizes = '"input_length": 900, "output_length": 9, "hash_ids": [1, 2]'
    lines = "\n".join(f'{{"timestamp": {1000 * at}, {sizes}}}' for at in range(5))
    trace = Trace(lines, "t.jsonl")
    own = make_workload(LoadAsk(trace=trace, rate_scale=2.0, requests=3, max_prompt_tokens=600))
    assert own.users is None and [r.arrival_s for r in own.requests] == [0, 0.5, 1.0]
    assert {(r.prompt_tokens, r.block_ids) for r in own.requests} == {(600, (1, 2))}
    assert make_workload(LoadAsk(trace=trace, users=3)).users == 3
    rated = make_workload(LoadAsk(trace=trace, rate_per_s=100.0))
    assert rated.users is None and rated.requests[-1].arrival_s < 2
    assert len(make_workload(LoadAsk()).requests) == 100 and make_workload(LoadAsk()).users == 1


def test_reports_never_take_a_good_ones_place(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "r.json"
    assert place_for(path, True) == path
    write_json(path, {"good": 1}, "--save")
    assert place_for(path, False) == path and place_for(path, True).name == "r.interrupted.json"
    (tmp_path / f"r.json.{os.getpid()}.partial").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_json(path, {"good": 2}, "--save")
    assert json.loads(path.read_text()) == {"good": 1}
    for wrong in (tmp_path, tmp_path / "none" / "r.json"):
        with pytest.raises(ConfigError, match="cannot be written"):
            check_place(wrong, "--save")


@given(st.lists(st.floats(0, 1e9), max_size=8))
@example([5e-324])
@example([1e-11])
def test_axes_hold_their_values(values: list[float]) -> None:
    step, count = steps(values)
    assert step * count >= max(values, default=0) * (1 - 1e-6) and 1 <= count <= 6
    assert len({tick(step * index, step) for index in range(count + 1)}) == count + 1


points = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e3)), min_size=1, max_size=8)


@given(points, points)
@settings(max_examples=examples(60))
def test_labels_do_not_overlap(measured: list[tuple[float, float]], guessed: list[tuple[float, float]]) -> None:
    labels = tuple(f"{index} users" for index in range(len(measured)))
    others = tuple(f"{index} of the others" for index in range(len(guessed)))
    lines = (Line(tuple(guessed), "#111", True, labels=others), Line(tuple(measured), "#0b6e4f", labels=labels))
    panel = Panel("t & t", "x", "y", lines)
    tree = ElementTree.fromstring(f"<svg>{panel.svg(0, 0)}</svg>")
    boxes = []
    for text in tree.iter("text"):
        if text.get("fill") in ("#0b6e4f", "#111"):
            left, bottom = float(text.get("x", 0)), float(text.get("y", 0)) + 3
            boxes.append((left, bottom - LABEL_HEIGHT, left + LABEL_CHARACTER * len(text.text or ""), bottom))
    for place, one in enumerate(boxes):
        assert one[0] > 0 and one[2] <= panel.width and one[1] >= TOP - 7 and one[3] <= panel.height - BOTTOM + 1
        for other in boxes[:place]:
            apart = one[2] <= other[0] + 0.2 or other[2] <= one[0] + 0.2 or one[3] <= other[1] + 0.2
            assert apart or other[3] <= one[1] + 0.2
