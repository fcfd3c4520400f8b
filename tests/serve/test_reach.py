"""How proxies, browsers and probes reach a server: names, pages of other sites, prefixes, forms of a path."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.harness import WAIT_S, Live, serving
from twostroke.assembly.settings.option_values import parse_hosts, parse_mode, parse_origins, parse_prefix
from twostroke.server.api.routes import routes_of
from twostroke.server.gate.one_path import api_paths, nothing_at
from twostroke.server.gate.reach import Reach

KEY = "correct horse"
PAGE = "https://app.example.org"
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def raw(live: Live, data: bytes) -> tuple[int, bytes]:
    """The status and the whole answer to these bytes."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S) as connection:
        connection.sendall(data)
        got = b""
        while piece := connection.recv(65536):
            got += piece
    return int(got.split(b" ")[1]), got


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("llm.example.org", 200),
        ("LLM.example.org:443", 200),
        ("a.pages.example", 200),
        ("a.b.pages.example", 200),
        ("localhost", 200),
        ("pages.example", 403),
        ("evilpages.example", 403),
        ("xllm.example.org", 403),
        ("llm.example.org.evil.example", 403),
    ],
)
def test_a_proxy_may_send_the_names_that_are_allowed(host: str, status: int) -> None:
    with serving(fake_parts(reach=Reach(hosts=("llm.example.org", "*.pages.example")))) as live:
        reply = live.get("/v1/models", Host=host)
        assert reply.status == status
        if status != 200:
            name = host.partition(":")[0]
            assert f"--allow-host {name}" in reply.error["message"] and "proxy" in reply.error["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/api/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/openai/deployments/spark/chat/completions", "/v1/chat/completions"),
        ("/openai/v1/responses", "/v1/responses"),
        ("/V1/Embeddings", "/v1/embeddings"),
        ("/models", "/v1/models"),
        ("/v1/audio/speech", None),
        ("/a" * 20_000, None),
    ],
)
def test_a_base_url_that_is_nearly_right_is_told(path: str, meant: str | None) -> None:
    advice = nothing_at(path, api_paths(routes_of(fake_parts()))).partition("at this path.")[2]
    assert advice == (f" The path here is {meant}: check the base URL that the client has." if meant else "")


def test_the_paths_of_the_advice_exist(live: Live) -> None:
    paths = api_paths(routes_of(fake_parts()))
    assert {"/v1/chat/completions", "/v1/models", "/v1/rerank", "/v1/messages/count_tokens"} <= paths
    assert all("{" not in path and path.startswith("/v1/") for path in paths)
    assert "/v1/messages" in live.post("/v1/v1/messages", CHAT).error["message"]
    assert "/v1/chat" in live.post("/api/v1/chat/completions", CHAT).json["error"], "in the form of Ollama's API"


def test_a_page_that_came_by_an_allowed_name_is_the_servers_own() -> None:
    with serving(fake_parts(reach=Reach(hosts=("llm.example.org",)))) as live:
        for host in ("llm.example.org", "127.0.0.1"):  # some proxies write a Host of their own
            asked = {"Host": host, "Origin": "https://llm.example.org"}
            assert live.post("/v1/chat/completions", CHAT, **asked).status == 200
        assert live.post("/v1/chat/completions", CHAT, Origin="https://evil.example").status == 403


def test_any_name_does_not_let_in_any_page() -> None:
    with serving(fake_parts(reach=Reach(hosts=("*",)))) as live:
        asked = {"Host": "some.example", "Origin": "https://some.example"}
        assert live.post("/v1/chat/completions", CHAT, **asked).status == 200
        asked["Origin"] = "https://evil.example"
        assert live.post("/v1/chat/completions", CHAT, **asked).status == 403


def preflight(live: Live, path: str = "/v1/chat/completions", **headers: str) -> Any:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
        **headers,
    }
    return live.call("OPTIONS", path, headers=asked)


@pytest.fixture(scope="module", params=["loopback", "key", "far"])
def open_to_page(request: pytest.FixtureRequest) -> Iterator[Live]:
    own = {"api_key": None if request.param == "loopback" else KEY, "loopback_only": request.param != "far"}
    with serving(fake_parts(reach=Reach(origins=(PAGE, "http://localhost:*")), **own)) as live:
        yield live


def test_a_preflight_of_an_allowed_page_needs_no_key(open_to_page: Live) -> None:
    for path in ("/v1/chat/completions", "/v1/models", "/nothing"):
        reply = preflight(open_to_page, path)
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert reply.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
        assert reply.headers["vary"] == "Origin" and int(reply.headers["access-control-max-age"]) > 0
        assert "access-control-allow-private-network" not in reply.headers
    own = {"Access-Control-Request-Private-Network": "true"}
    assert preflight(open_to_page, **own).headers["access-control-allow-private-network"] == "true"
    odd = preflight(open_to_page, **{"Access-Control-Request-Headers": "a\tb"})
    assert "access-control-allow-headers" not in odd.headers


def test_answers_errors_and_streams_have_the_headers(open_to_page: Live) -> None:
    own = {"Origin": PAGE, "x-api-key": KEY}
    asks: list[tuple[str, str, Any, int]] = [
        ("GET", "/v1/models", None, 200),
        ("POST", "/v1/chat/completions", CHAT, 200),
        ("POST", "/v1/chat/completions", {**CHAT, "stream": True}, 200),
        ("POST", "/v1/chat/completions", b"{", 400),
        ("GET", "/nothing", None, 404),
        ("GET", "/v1/completions", None, 405),
        ("POST", "/v1/completions", {"model": "gpt-5", "prompt": "x"}, 404),
    ]
    for method, path, body, status in asks:
        reply = open_to_page.call(method, path, body, own)
        assert reply.status == status
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
    if open_to_page.parts.access.api_key is not None:
        refused = open_to_page.call("GET", "/v1/models", headers={"Origin": PAGE})
        assert refused.status == 401 and refused.headers["access-control-allow-origin"] == PAGE
    plain = open_to_page.call("GET", "/health")
    assert plain.headers["vary"] == "Origin" and "access-control-allow-origin" not in plain.headers


def test_other_pages_are_told_the_option(open_to_page: Live) -> None:
    for origin in ("https://evil.example", "https://app.example.org.evil.example", "null", "http://localhostx:80"):
        reply = preflight(open_to_page, Origin=origin)
        assert (reply.status, reply.error["code"]) == (403, "invalid_origin")
        assert "--allow-origin" in reply.error["message"]
        assert "access-control-allow-origin" not in reply.headers
    assert preflight(open_to_page, Origin="http://localhost:3000").status == 204


def test_closed_by_default_and_the_refusal_names_the_option() -> None:
    for key in (None, KEY):
        with serving(fake_parts(api_key=key)) as live:
            for origin in (PAGE, "http://localhost:3000"):
                reply = preflight(live, Origin=origin)
                assert reply.status == 403 and "--allow-origin" in reply.error["message"]
                assert not [name for name in reply.headers if name.startswith("access-control")]


def test_any_page() -> None:
    with serving(fake_parts(FakeEngine(), reach=Reach(origins=("*",)))) as live:
        for origin in ("https://evil.example", "null", "chrome-extension://abc"):
            assert preflight(live, Origin=origin).headers["access-control-allow-origin"] == "*"
            reply = live.post("/v1/chat/completions", CHAT, Origin=origin)
            assert reply.status == 200 and reply.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in reply.headers
        assert live.post("/v1/chat/completions", CHAT, Host="evil.example").status == 403


@pytest.mark.parametrize("prefix", ["/llm", "/a/b"])
def test_a_prefix_may_be_there_or_not(prefix: str) -> None:
    with serving(fake_parts(api_key=KEY, reach=Reach(root_path=prefix))) as live:
        for path in ("/v1/models", f"{prefix}/v1/models", f"/{prefix}//v1/models/"):
            assert live.get(path, x_api_key=KEY).json["object"] == "list"
            assert live.get(path).status == 401
        moved = live.get(prefix + "?a=1")
        assert moved.status == 308 and moved.headers["location"] == prefix.rpartition("/")[2] + "/?a=1"
        assert live.get(f"{prefix}/").body == live.get("/").body
        assert live.get(f"{prefix}/health").status == 200
        assert live.get(f"{prefix}x/v1/models", x_api_key=KEY).status == 404
        document = live.get(f"{prefix}/openapi.json", x_api_key=KEY).json
        assert document["servers"] == [{"url": prefix}]


def test_slashes_are_one_path() -> None:
    with serving(fake_parts(api_key=KEY)) as live:
        own = {"x-api-key": KEY}
        chat = "/v1/chat/completions"
        for path in (f"{chat}/", f"/{chat}", "/v1//chat/completions", "///v1/chat//completions//"):
            assert live.call("POST", path, CHAT, own).status == 200
            assert live.post(path, CHAT).status == 401
        for path in ("/v1/models/", "//v1/models"):
            assert live.call("GET", path, headers=own).json["object"] == "list"
        assert live.get("//health/").status == 200
        assert live.get("//").headers["content-type"].startswith("text/html")


def test_a_probe_without_a_host_and_the_absolute_form() -> None:
    with serving(fake_parts()) as live:
        assert raw(live, b"GET /health HTTP/1.0\r\n\r\n")[0] == 200
        assert raw(live, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")[0] == 400
        closing = b"Connection: close\r\n\r\n"
        assert raw(live, b"GET http://127.0.0.1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + closing)[0] == 200
        status, page = raw(live, b"GET HTTP://localhost:80 HTTP/1.1\r\nHost: x\r\n" + closing)
        assert status == 200 and b"<!doctype html>" in page
        # the target's host counts, and no other (RFC 9112 3.2.2)
        assert raw(live, b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n" + closing)[0] == 403
        assert raw(live, b"GET http://a@b/health HTTP/1.1\r\nHost: localhost\r\n" + closing)[0] == 400
        body = json.dumps({**CHAT, "stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
        status, stream = raw(live, head + body)
        assert status == 200 and b"chunked" not in stream.lower() and stream.endswith(b"data: [DONE]\n\n")
        assert raw(live, b"GET /health HTTP/1.0\r\nOrigin: https://evil.example\r\n\r\n")[0] == 403


def test_values_of_the_options() -> None:
    assert parse_hosts("LLM.example.org, *.a.example,[::1]") == ("llm.example.org", "*.a.example", "::1")
    assert parse_origins("https://App.example.org/,null,app://obsidian.md,http://[::1]:80,*") == (
        *("https://app.example.org", "null", "app://obsidian.md", "http://[::1]:80", "*"),
    )
    assert parse_prefix("llm/") == parse_prefix("/llm") == "/llm" and parse_mode("0660") == "660"
    for parse, text in [
        *((parse_hosts, bad) for bad in ("http://a.example", "a.example:80", "a/b", "a,", "*a.example", "a.*")),
        *((parse_origins, bad) for bad in ("app.example.org", "https://a.example/x", "", "https://")),
        *((parse_prefix, bad) for bad in ("/", "/../x", "/a b", "/a//b", "/a?b")),
        *((parse_mode, bad) for bad in ("rw", "999", "6600", "")),
    ]:
        with pytest.raises(ValueError):
            parse(text)
