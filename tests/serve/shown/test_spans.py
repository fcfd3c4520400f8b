"""OpenTelemetry: spans of answers as a collector gets them over OTLP/HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.serve.harness import serving, wait_until
from twostroke.server.build import build_server

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """The address of a collector, and the spans that it got."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told = ExportTraceServiceRequest.FromString(body)
            spans.extend(span for each in told.resource_spans for scope in each.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_words: Any) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_answer_is_a_span_below_its_callers_with_its_phases_below() -> None:
    with collector() as (url, spans):
        with build_server("spark", {"kv_memory": "10MB", "threads": 1, "otlp": url}) as built:
            with serving(built.parts) as live:
                made = live.post(
                    "/v1/completions",
                    {"model": "spark", "prompt": [5, 6, 7, 8], "max_tokens": 6, "ignore_eos": True},
                    traceparent=f"00-{TRACE}-{CALLER}-01",
                ).json
                live.get("/v1/models")
                wait_until(lambda: not live.parts.serving.view.ledger.live(), "rest")
        found = {span.name: span for span in spans}  # the end of the server has sent them
    assert sorted(found) == ["decode", "prefill", "queue", "text_completion spark"] and len(spans) == 4
    whole = found["text_completion spark"]
    assert whole.trace_id.hex() == TRACE and whole.parent_span_id.hex() == CALLER
    told = {each.key: each.value for each in whole.attributes}
    assert told["gen_ai.usage.input_tokens"].int_value == 4 and told["gen_ai.usage.output_tokens"].int_value == 6
    assert told["gen_ai.response.id"].string_value == made["id"]
    assert told["gen_ai.provider.name"].string_value == "twostroke"
    marks = [whole.start_time_unix_nano]
    for name in ("queue", "prefill", "decode"):
        assert found[name].parent_span_id == whole.span_id
        marks += [found[name].start_time_unix_nano, found[name].end_time_unix_nano]
    marks.append(whole.end_time_unix_nano)
    # Two clocks are compared, each read at its own moment, so a small difference is allowed.
    assert all(later - earlier > -5_000_000 for earlier, later in zip(marks, marks[1:], strict=False)), marks
    assert "prompt" not in str(told.keys()).replace("input", "")


def test_nothing_of_opentelemetry_is_imported_without_it() -> None:
    import subprocess
    import sys

    code = "import sys, twostroke.server.build; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_wrong_address_is_refused() -> None:
    from twostroke.types.errors import ConfigError

    with pytest.raises(ConfigError, match="--otlp"):
        build_server("spark", {"otlp": "collector:4318"})
