"""Messages of the page for servers of tools: they are passed on unchanged, and only to the addresses of --mcp."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, Reply, serving
from tests.serve.tool_server import Tools, tools
from twostroke.assembly.settings.option_values import parse_tool_server
from twostroke.server.attached import tool_servers
from twostroke.server.attached.tool_servers import Passed, ToolServer, ask
from twostroke.server.errors import HttpProblem

BEGIN = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}


@pytest.fixture
def there() -> Iterator[Tools]:
    with tools() as made:
        yield made


@pytest.fixture
def server(there: Tools) -> Iterator[Live]:
    with serving(fake_parts(tool_servers=(ToolServer("files", there.url),))) as made:
        yield made


def send(live: Live, message: Any, name: str = "files", **fields: str) -> Reply:
    return live.post(f"/v1/mcp/{name}", {"message": message, **fields}, authorization="Bearer secret", cookie="a=b")


@pytest.mark.parametrize("form", ["json", "events"])
def test_a_session_from_its_begin_to_a_result(server: Live, there: Tools, form: str) -> None:
    there.form = form
    assert server.get("/v1/mcp").json == {"servers": ["files"]}
    begun = send(server, BEGIN).json
    assert begun["session"] == "s1" and begun["message"]["result"]["protocolVersion"] == "2025-06-18"
    known = {"session": "s1", "version": "2025-06-18"}
    noted = send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **known)
    assert noted.json == {"message": None, "session": "s1"}
    call = {"name": "weather", "arguments": {"city": "Ulm"}}
    made = send(server, {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": call}, **known)
    assert made.json["message"]["result"]["content"] == [{"type": "text", "text": "dry in Ulm"}]
    assert there.asked[-1]["params"] == call
    sent = there.headers[-1]
    assert sent["mcp-session-id"] == "s1" and sent["mcp-protocol-version"] == "2025-06-18"
    assert not {"authorization", "cookie"} & set(sent), "nothing of the client goes along"


def test_a_session_that_is_over_is_told(server: Live) -> None:
    listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert send(server, listed, session="old").json["error"]["code"] == "mcp_session_over"


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "resources/read"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"id": 1, "method": "ping"},
        {},
        [],
    ],
)
def test_what_the_page_does_not_need_is_not_passed_on(server: Live, there: Tools, message: Any) -> None:
    assert send(server, message).status == 400 and there.asked == []


@pytest.mark.parametrize("fields", [{"session": "a\r\nx: y"}, {"session": "ä"}, {"version": "1\n"}, {"version": "x"}])
def test_a_header_is_never_made_of_other_characters(server: Live, there: Tools, fields: dict[str, str]) -> None:
    assert send(server, BEGIN, **fields).status == 400 and there.asked == []


def test_other_names_are_not_asked(server: Live, there: Tools) -> None:
    for name in ("other", "http%3A%2F%2F127.0.0.1%2F", ".."):
        assert send(server, BEGIN, name).status == 404
    assert there.asked == []


@pytest.mark.parametrize(
    "reply",
    [
        (307, {"location": "http://127.0.0.1:1/"}, b""),
        (500, {}, b"no"),
        (401, {}, b""),
        (200, {"content-type": "application/json"}, b"no json"),
        (200, {"content-type": "application/json"}, b"[]"),
        (200, {"content-type": "application/json"}, b'{"id": 7, "result": {}}'),
        (200, {"content-type": "text/event-stream"}, b'data: {"id": 7}\n\n'),
        (200, {"content-type": "text/event-stream"}, b"data: no json\n\n" * 3),
        (200, {"content-type": "text/event-stream"}, b""),
    ],
)
def test_what_is_no_answer_is_one_clear_error(server: Live, there: Tools, reply: Any) -> None:
    there.reply = reply
    refused = send(server, BEGIN)
    assert refused.status == 502 and "'files'" in refused.error["message"]
    assert refused.error["code"] == "mcp_unreachable" and len(there.asked) == 1


def test_an_answer_is_bounded_and_so_is_its_time(there: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_servers, "MOST_BYTES", 1000)
    server, large = ToolServer("files", there.url), b"x" * 2000
    there.reply = (200, {"content-type": "application/json"}, json.dumps({"id": 1, "result": "x" * 2000}).encode())
    for reply in (there.reply, (200, {"content-type": "text/event-stream"}, b"data: " + large + b"\n\n")):
        there.reply = reply
        with pytest.raises(HttpProblem):
            ask(server, Passed(BEGIN))
    there.reply, there.form = None, "events"
    with pytest.raises(HttpProblem):
        ask(server, Passed(BEGIN), limit_s=1e-9)
    with pytest.raises(HttpProblem) as refused:
        ask(ToolServer("gone", "http://127.0.0.1:1/mcp"), Passed(BEGIN))
    assert "'gone'" in refused.value.problem.message


def test_without_the_option_there_are_none(live: Live) -> None:
    assert live.get("/v1/mcp").json == {"servers": []}
    refused = send(live, BEGIN)
    assert refused.status == 404 and "--mcp NAME=URL" in refused.error["message"]


NO_SERVERS = ("", "x", "=http://a", "a b=http://a", "a=ftp://a", "a=", "a=/x", "x" * 33 + "=http://a")


@pytest.mark.parametrize("text", NO_SERVERS)
def test_what_is_no_server_of_tools_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_tool_server(text)


def test_a_server_of_tools_has_a_name_and_an_address() -> None:
    assert parse_tool_server("files=http://127.0.0.1:9/mcp?a=b") == ("files", "http://127.0.0.1:9/mcp?a=b")
