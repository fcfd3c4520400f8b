"""Logs: one JSON object for each request, with its id, whatever it contained, and without prompts or keys."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.harness import serving, wait_until
from twostroke.server.telemetry.logs import JsonLines, TextLines, set_up, tear_down


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = set_up(JsonLines(), logging.INFO, stream)
    yield stream
    tear_down(handler)


def lines(written: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_each_request_is_one_line_with_its_id(written: io.StringIO) -> None:
    with serving(fake_parts(api_key="very-secret")) as live:
        asked = {"model": "org/fake-model", "prompt": "my private prompt", "n": 2, "max_tokens": 4}
        made = live.post("/v1/completions", asked, Authorization="Bearer very-secret", X_Request_Id="abc-1")
        live.get("/nothing", X_Request_Id="abc-2")
        wait_until(lambda: len(lines(written)) == 2, "two lines")
    first, second = sorted(lines(written), key=lambda line: str(line["request_id"]))
    assert first["request_id"] == "abc-1" == made.headers["x-request-id"]
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/completions", 200)
    assert first["response_id"] == made.json["id"] and first["finish_reasons"] == ["length", "length"]
    assert (first["prompt_tokens"], first["output_tokens"], first["cached_tokens"]) == (17, 8, 3)
    assert isinstance(first["seconds"], float) and first["level"] == "info" and str(first["time"]).endswith("Z")
    assert (second["request_id"], second["status"], "response_id" in second) == ("abc-2", 401, False)
    assert "private" not in written.getvalue() and "secret" not in written.getvalue()


def test_a_fault_is_logged_with_the_requests_id_and_its_traceback(written: io.StringIO) -> None:
    engine = FakeEngine()
    engine.error, engine.error_after = RuntimeError("the wall fell"), 2
    with serving(fake_parts(engine)) as live:
        reply = live.chat(stream=True)
        wait_until(lambda: len(lines(written)) == 2, "two lines")
    fault, request = lines(written)
    assert fault["level"] == "error" and "the wall fell" in str(fault["error"])
    assert fault["request_id"] == request["request_id"] == reply.headers["x-request-id"]
    assert b"the wall fell" not in reply.body


def test_nothing_that_a_client_sends_starts_a_line() -> None:
    stream = io.StringIO()
    handler = set_up(TextLines(), logging.INFO, stream)
    try:
        with serving(fake_parts()) as live:
            live.get("/a%0a2026-01-01%20error%20forged")
            wait_until(lambda: bool(stream.getvalue()), "a line")
    finally:
        tear_down(handler)
    assert len(stream.getvalue().splitlines()) == 1 and 'path="/a\\n2026' in stream.getvalue()
