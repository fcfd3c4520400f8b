"""Unknown fields: a header and the log name them, and with the option misspelt ones are refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.serve.fakes import MODEL, fake_parts
from tests.serve.harness import Live, serving, wait_until
from twostroke.server.api.fields.field_check import MAX_NAMED, FieldCheck, nearest
from twostroke.server.api.messages_request import MessagesRequest
from twostroke.server.api.responses_request import ResponsesRequest
from twostroke.server.api.schema import ChatRequest, CompletionRequest
from twostroke.types.errors import InvalidRequest

HEADER = "x-twostroke-ignored-fields"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
    "/v1/completions": {"prompt": "hi", "max_tokens": 3},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
}


@pytest.fixture(scope="module")
def strict() -> Iterator[Live]:
    with serving(fake_parts(fields=FieldCheck(strict=True))) as server:
        yield server


def ask(live: Live, path: str, **fields: Any) -> Any:
    return live.post(path, {"model": MODEL, **BODIES[path], **fields})


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_field_without_a_meaning_is_named(path: str, stream: bool, live: Live) -> None:
    known = {"user": "me", "client_metadata": {"a": "b"}}
    reply = ask(live, path, stream=stream, temprature=0.5, n_keep=2, nothing=None, **known)
    assert reply.status == 200
    assert reply.headers[HEADER] == "temprature (did you mean temperature?), n_keep"
    assert HEADER not in ask(live, path, stream=stream, temperature=0.5).headers


def test_the_header_is_harmless_and_bounded(live: Live) -> None:
    names = ["x\r\nset-cookie: a=b", "é\x00", "n" * 5000, ""] + [f"zz{place}" for place in range(500)]
    reply = ask(live, "/v1/chat/completions", **{name: 1 for name in names})
    assert reply.status == 200 and "set-cookie" not in reply.headers
    told = reply.headers[HEADER].split(", ")
    assert told[:4] == ["x??set-cookie??a?b", "??", "n" * 64, "?"]
    assert len(told) == MAX_NAMED + 1 and told[-1] == f"and {len(names) - MAX_NAMED} more"
    assert len(reply.headers[HEADER]) < 2000


TOLD = "tempreature (did you mean temperature?)"


def ended(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The lines of requests with that field. They are written once an answer has been sent."""
    lines = [record for record in caplog.records if record.getMessage() == "request"]
    return [line for line in lines if vars(line).get("ignored_fields") == [TOLD]]


def test_the_log_names_each_field_once_and_every_request_has_its_own(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "twostroke.server"):
        for _ in range(3):
            ask(live, "/v1/completions", tempreature=1)
        wait_until(lambda: len(ended(caplog)) == 3, "the lines of all three requests")
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1 and TOLD in warned[0].getMessage()


@pytest.mark.parametrize("path", BODIES)
def test_strict_servers_refuse_misspelt_fields_and_only_these(path: str, strict: Live) -> None:
    reply = ask(strict, path, temprature=0.5)
    assert reply.status == 400 and "Did you mean temperature?" in reply.body.decode()
    other = ask(strict, path, n_keep=2)
    assert other.status == 200 and other.headers[HEADER] == "n_keep"
    assert ask(strict, path, user="me", temperature=0.5).status == 200


def test_the_packages_see_the_refusal(strict: Live) -> None:
    with OpenAI(base_url=strict.url + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], extra_body={"temprature": 0.5}
            )
        assert (caught.value.code, caught.value.param) == ("unknown_field", "temprature")
        made = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], extra_body={"future_field": 1}
        )
        assert made.headers[HEADER] == "future_field"
    with Anthropic(base_url=strict.url, api_key="none", max_retries=0) as client_a:
        with pytest.raises(anthropic.BadRequestError, match="top_p"):
            client_a.messages.create(
                model=MODEL, max_tokens=3, messages=[{"role": "user", "content": "hi"}], extra_body={"topP": 0.5}
            )


def test_what_the_packages_send_by_themselves_is_known(live: Live) -> None:
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        made = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=BODIES["/v1/messages"]["messages"]
        )
        assert HEADER not in made.headers
        assert HEADER not in client.responses.with_raw_response.create(model=MODEL, input="hi").headers
    with Anthropic(base_url=live.url, api_key="none", max_retries=0) as client_a:
        answer = client_a.messages.with_raw_response.create(
            model=MODEL, max_tokens=3, messages=[{"role": "user", "content": "hi"}]
        )
        assert HEADER not in answer.headers


@pytest.mark.parametrize(
    ("name", "kind", "near"),
    [
        ("temprature", ChatRequest, "temperature"),
        ("Temperature", ChatRequest, "temperature"),
        ("max_token", ChatRequest, "max_tokens"),
        ("maxTokens", CompletionRequest, "max_tokens"),
        ("max_new_tokens", ChatRequest, "max_tokens"),
        ("max-tokens", MessagesRequest, "max_tokens"),
        ("max_output_token", ResponsesRequest, "max_output_tokens"),
        ("stop_sequences", ChatRequest, "stop"),
        ("stop_sequences", MessagesRequest, "stop_sequences"),
        ("frequency_penality", ChatRequest, "frequency_penalty"),
        ("tool", ChatRequest, "tools"),
        ("topk", ChatRequest, "top_k"),
        ("respons_format", ChatRequest, "response_format"),
        ("length_penalti", ChatRequest, "length_penalty"),
        ("num_beams", ChatRequest, "best_of"),
        ("top_a", ChatRequest, None),
        ("tfs_z", ChatRequest, None),
        ("n_keep", ChatRequest, None),
        ("typicalp", ChatRequest, "typical_p"),
        ("future_field", ChatRequest, None),
        ("x" * 10_000, ChatRequest, None),
    ],
)
def test_what_was_probably_meant(name: str, kind: Any, near: str | None) -> None:
    assert nearest(name, kind) == near


def test_a_strict_check_cannot_be_passed_by_a_crowd_of_fields() -> None:
    body = json.dumps({**{f"q{place}": 1 for place in range(100)}, "temprature": 1}).encode()
    with pytest.raises(InvalidRequest, match="101 fields"):
        FieldCheck(strict=True).ignored(body, ChatRequest)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"5", b"\xff", b'{"a":' * 5000])
def test_what_is_no_object_is_left_to_the_decoder(body: bytes) -> None:
    assert FieldCheck(strict=True).ignored(body, ChatRequest) == ()
