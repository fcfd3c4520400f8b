"""Every body that is no request is a 400 or 413 that tells why, and the server goes on."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.fakes import fake_parts
from tests.serve.faults.test_bad_requests import checked
from tests.serve.harness import Live
from tests.tiers import examples
from twostroke.server.errors import HttpProblem
from twostroke.server.prompts import chat_call, completion_call
from twostroke.types.errors import InvalidRequest


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"nonsense", "invalid_json"),
        (b'{"model": "\xff\xfe"}', "invalid_json"),
        (b'{"model": NaN}', "invalid_json"),
        (b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "invalid_json"),
        (b'{"x": ' + b"[" * 4_000_000, "invalid_json"),
        (b"[]", None),
        (b"5", None),
        (b"null", None),
        (b'"text"', None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_bodies_that_are_no_request(live: Live, path: str, body: bytes, code: str | None) -> None:
    assert checked(live.post(path, body), None, live)["code"] == code


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "zstd", "deflate", "gzip, identity"])
def test_a_compressed_body_is_refused_by_its_name(live: Live, encoding: str) -> None:
    body = gzip.compress(json.dumps({"model": live.model, "prompt": "a"}).encode())
    reply = live.call("POST", "/v1/completions", body, {"Content-Encoding": encoding})
    assert (reply.status, reply.error["code"]) == (415, "unsupported_encoding")
    assert "Content-Encoding" in reply.error["message"] and reply.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_a_body_that_is_said_to_be_as_it_is_is_read(live: Live, encoding: str) -> None:
    assert live.post("/v1/completions", {"model": live.model, "prompt": "a"}, Content_Encoding=encoding).status == 200


def test_json_nested_beyond_the_limit_within_a_message(live: Live) -> None:
    deep: Any = "x"
    for _ in range(70):
        deep = {"a": deep}
    error = checked(live.chat(messages=[{"role": "user", "content": "hi", "extra": deep}]), None, live)
    assert "nested" in error["message"]


def test_a_body_over_the_cap_is_413_declared_or_not(live: Live) -> None:
    big = b'{"x": "' + b"a" * live.parts.admission.limits.body_bytes + b'"}'
    for headers in ({}, {"Transfer-Encoding": "chunked"}):
        try:
            reply = live.call("POST", "/v1/completions", _chunked(big) if headers else big, headers)
        except (ConnectionResetError, BrokenPipeError):
            pass  # the server answered and closed while we were still sending
        else:
            assert reply.status == 413
            assert reply.error["code"] == "request_too_large" and "--body-memory" in reply.error["message"]
        assert live.get("/health").status == 200
    reply = live.call("POST", "/v1/completions", b"", {"Content-Length": str(10**12)})
    assert reply.status == 413


def _chunked(data: bytes, size: int = 1 << 20) -> bytes:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@settings(max_examples=examples(300), deadline=None)
@given(body=st.binary(max_size=60))
def test_no_bytes_are_anything_but_a_400(body: bytes) -> None:
    for read in (chat_call, completion_call):
        with pytest.raises((InvalidRequest, HttpProblem)):
            read(body, fake_parts().serving)


def test_long_histories_are_read_and_bodies_of_very_many_values_are_not(live: Live) -> None:
    """Agents send 20 MB of pictures in a history of thousands of turns; lists of lists are an attack."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 100_000}}
    turns = [{"role": role, "content": "x"} for _ in range(1500) for role in ("user", "assistant")]
    asked = {"role": "user", "content": [{"type": "text", "text": "see"}, picture]}
    seen = [asked, {"role": "assistant", "content": "k"}]
    reply = live.chat(messages=[*seen * 20, *turns, {"role": "user", "content": "go on"}])
    assert reply.error["code"] == "context_length_exceeded", "all of it was read: it is longer than this context"
    many = b'{"model": "m", "messages": [' + b"[]," * 3_000_000 + b"[]]}"
    reply = live.call("POST", "/v1/chat/completions", many)
    assert reply.status == 413 and "commas" in reply.error["message"]
