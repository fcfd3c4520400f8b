"""The live view's routes: frames have a bounded size, steps that a slow viewer missed are counted, and tokens never
change."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.harness import WAIT_S, Live, serving, wait_until
from twostroke.cost.history.ledger import Ledger
from twostroke.server.live.frame import MAX_REQUESTS, MAX_ROWS, MAX_STEPS, Frames
from twostroke.server.live.recent import Recent
from twostroke.server.live.routes import MAX_VIEWERS
from twostroke.server.live.view import EngineView
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult
from twostroke.types.sampling.sampling_params import SamplingParams


@contextmanager
def watching(live: Live) -> Iterator[Iterator[dict[str, Any]]]:
    """The frames of one viewer."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=WAIT_S)
    connection.request("GET", "/v1/engine/steps")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.getheader("content-type") == "text/event-stream; charset=utf-8"

    def frames() -> Iterator[dict[str, Any]]:
        while line := answer.readline():
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])

    try:
        yield frames()
    finally:
        connection.close()


def numbers(frame: dict[str, Any]) -> list[int]:
    """The numbers of the steps in a frame."""
    return [run["number"] + at for run in frame["runs"] for at in range(len(run["times"]))]


def test_frames_hold_every_step_once_and_what_was_computed(spark: Live) -> None:
    with watching(spark) as frames:
        opened = next(frames)
        seen, before_s = numbers(opened), opened["now_s"]
        before = seen[-1] if seen else 0
        made = spark.complete(prompt=[5, 6, 7, 8, 9], max_tokens=30, ignore_eos=True).json
        found: list[dict[str, Any]] = []
        ended: list[dict[str, Any]] = []
        told: list[int] = []
        for frame in frames:
            found += frame["runs"] and [frame]
            ended += frame["ended"]
            told += numbers(frame)
            if ended and len(told) >= 30:  # the last step may come a frame later than the end
                break
        assert told == list(range(before + 1, before + 31))
        runs = [(run, frame["names"]) for frame in found for run in frame["runs"]]
        first, names = runs[0]
        assert names[first["rows"][0][0]] == f"{made['id']}-0/0" and first["rows"][0][1:] == [0, 5, 0, 0]
        assert first["prefill_share"] == 1 and runs[1][0]["prefill_share"] == 0
        for run, _ in runs:
            assert all(0 < model + sampling <= whole for _, whole, model, sampling, _ in run["times"])
            begun = [since for since, *_ in run["times"]]
            assert begun == sorted(begun) and begun[0] == 0 and before_s < run["begin_s"] < frame["now_s"]
            assert min(run["predicted_s"] + run["flops"] + run["bytes"]) > 0
        assert ended[0]["request"] == f"{made['id']}-0/0" and ended[0]["output_tokens"] == 30
        decoded = sum(row[4] * len(run["times"]) for run, _ in runs for row in run["rows"])
        assert decoded == 29  # the prompt's step writes the first; steps with guesses count as decode, too
        assert sum(pages for _, pages in frame["pages"]) == sum(
            frame["gauges"][name] for name in ("pages_free", "pages_used", "pages_cached")
        )


def _request(name: str, prompt: int = 4) -> Request:
    return Request(name, name, tuple(range(prompt)), SamplingParams(), 0, 9, frozenset(), 0.0)


def _stepped(ledger: Ledger, requests: list[Request], start: int, steps: int, rows: int) -> None:
    """The steps of these requests, each of `rows` rows."""
    for at in range(steps):
        begin_s = 0.01 * (ledger.num_steps + 1)
        known = [0] * (start + rows * (at + 1))
        role = Role.DECODE if rows == 1 else Role.PREFILL
        parts = tuple(PlannedSequence(each, start + at * rows, rows, known, ([0],), True, role) for each in requests)
        result = StepResult({}, model_s=0.004, sampling_s=0.001)
        ledger.step(Plan(ledger.num_steps + 1, parts), result, begin_s, begin_s + 0.008)
        ledger.close_step(begin_s + 0.009)


def test_a_viewer_that_was_away_gets_a_frame_of_bounded_size_and_the_number_it_missed() -> None:
    ledger = Ledger()
    requests = [_request(f"chatcmpl-{place:032x}-0/0") for place in range(64)]
    for request in requests:
        ledger.arrive(request)
    frames = Frames(EngineView(ledger, lambda: bytes(range(5)) * 40_000))
    assert frames.next(None, {})["skipped_steps"] == 0
    seen = missed = 0
    for steps, rows in ((3, 2), (2000, 2), (5, 1), (900, 1)):
        _stepped(ledger, requests, 4, steps, rows)
        frame = frames.next(None, {})
        shown = len(numbers(frame))
        assert shown <= MAX_STEPS and sum(len(run["rows"]) for run in frame["runs"]) <= MAX_ROWS
        assert len(json.dumps(frame, separators=(",", ":"))) < 80_000
        assert len(frame["requests"]) <= MAX_REQUESTS and frame["last_step"] == ledger.num_steps
        seen, missed = seen + shown, missed + frame["skipped_steps"]
    assert seen + missed == ledger.num_steps == 2908 and missed > 2000


def test_a_slow_viewer_loses_frames_and_no_stream_loses_tokens(spark: Live) -> None:
    with socket.create_connection(("127.0.0.1", spark.port), timeout=WAIT_S) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /v1/engine/steps HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")  # the client reads nothing
        texts = set()
        for _ in range(3):
            streamed = spark.complete(prompt=[5, 6, 7], max_tokens=200, ignore_eos=True, temperature=0, stream=True)
            texts.add("".join(event["choices"][0]["text"] for event in streamed.events[:-1]))
        whole = spark.complete(prompt=[5, 6, 7], max_tokens=200, ignore_eos=True, temperature=0)
        assert texts == {whole.json["choices"][0]["text"]}


def test_viewers_are_few_and_their_places_come_back(spark: Live) -> None:
    places: list[socket.socket] = []

    def took_a_place() -> bool:
        viewer = socket.create_connection(("127.0.0.1", spark.port), timeout=WAIT_S)
        viewer.sendall(b"GET /v1/engine/steps HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        taken = viewer.recv(12) == b"HTTP/1.1 200"
        if taken:
            places.append(viewer)
        else:
            viewer.close()
        return taken

    for _ in range(MAX_VIEWERS):  # the place of an earlier viewer comes back a little after it has gone
        wait_until(took_a_place, "a place")
    refused = spark.get("/v1/engine/steps")
    assert refused.status == 503 and refused.error["code"] == "overloaded"
    for each in places:
        each.close()
    wait_until(took_a_place, "a free place")
    places.pop().close()


def test_a_viewer_does_not_hold_up_the_servers_end() -> None:
    with serving(fake_parts()) as live:
        stream = socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S)
        stream.sendall(b"GET /v1/engine/steps HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert stream.recv(12) == b"HTTP/1.1 200"
        live.parts.admission.closing.began = True  # Server.shutdown does the same
        received = b""
        while chunk := stream.recv(65536):
            received += chunk
            if received.endswith(b"0\r\n\r\n"):
                break
        assert b"data: [DONE]" in received
        stream.close()


def test_progress_is_sent_only_where_it_is_asked_for(spark: Live) -> None:
    asked = {"prompt": [7 + at % 900 for at in range(1800)], "max_tokens": 2, "stream": True, "cache_salt": "progress"}
    for progress in (True, None):
        events = spark.complete(**asked, return_progress=progress).events[:-1]
        told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        assert all(event["choices"] for event in events if "prompt_progress" not in event)
        assert progress or not told
        for each in told:
            assert each["total"] == 1800 and each["processed"] <= 1800 and each["time_ms"] > 0


def test_a_recording_holds_the_steps_between_two_times(spark: Live) -> None:
    begin_s = spark.get("/v1/engine/about").json["now_s"]
    made = spark.complete(prompt=[9, 8, 7], max_tokens=5, ignore_eos=True).json
    wait_until(lambda: spark.parts.serving.engine.gauges().running == 0, "rest")
    events = spark.get(f"/v1/engine/trace?begin_s={begin_s}").json["traceEvents"]
    steps = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    assert len(steps) == 5 and f"{made['id']}-0/0" in {event["args"].get("name") for event in events}
    assert spark.get(f"/v1/engine/trace?begin_s=0&end_s={begin_s / 2}").json["traceEvents"][2:] == []
    assert spark.get("/v1/engine/trace?begin_s=x").error["param"] == "begin_s"


def test_percentiles_and_the_share_within_an_objective() -> None:
    recent = Recent()
    recent.ttft_s.extend(place / 100 for place in range(1, 101))
    told = recent.figures(ttft_s=0.25)
    assert told["ttft"] == {
        "count": 100,
        "objective_s": 0.25,
        "p50_s": 0.5,
        "p90_s": 0.9,
        "p99_s": 0.99,
        "within": 0.25,
    }
    assert told["itl"] == {"count": 0, "objective_s": None}


def test_the_page_is_public_keeps_to_itself_and_shows_nothing() -> None:
    with serving(fake_parts(FakeEngine(), api_key="secret")) as live:
        page = live.get("/")
        assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert live.get("/", If_None_Match=page.headers["etag"]).status == 304
        script = live.get("/page/main.js")
        assert script.headers["content-type"].startswith("text/javascript") and script.headers["x-content-type-options"]
        for path in ("/v1/engine/about", "/v1/engine/steps", "/v1/engine/trace"):
            assert live.get(path).status == 401
            assert path.endswith("steps") or live.get(path, Authorization="Bearer secret").status == 200
        for path in ("/page/", "/page/__init__.py", "/page/../app.py", "/page/%2e%2e/app.py"):
            assert live.get(path).status == 401
        assert live.get("/", Host="evil.example").status == 403


def test_frames_are_made_only_while_there_is_a_viewer() -> None:
    asked = 0

    def pages() -> bytes:
        nonlocal asked
        asked += 1
        return b""

    with serving(fake_parts(view=EngineView(pages=pages))) as live:
        live.complete()
        assert asked == 0
        with watching(live) as frames:
            next(frames)
        assert asked >= 1
