"""Tests which requests may come in (keys, hosts, origins), and what must not be in headers and logs."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.harness import serving
from twostroke.server.gate.security import host_name, is_loopback

KEY = "correct horse"


def test_without_the_key_only_health_and_the_pages_files_answer() -> None:
    with serving(fake_parts(api_key=KEY)) as live:
        assert live.get("/health").status == 200
        assert live.get("/").status == 200
        for path in (
            "/v1/models",
            "/metrics",
            "/version",
            "/v1/engine/about",
            "/page/",
            "/v1/../health",
            "/nothing",
        ):
            reply = live.get(path)
            assert (reply.status, reply.error["code"]) == (401, "invalid_api_key"), path
            assert reply.headers["www-authenticate"] == "Bearer"
        assert live.chat().status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"Authorization": f"bearer {KEY}"}, 200),
        ({"x-api-key": KEY}, 200),
        ({"api-key": KEY}, 200),
        ({"Api-Key": KEY + "x"}, 401),
        ({"X-API-Key": KEY, "Authorization": "Bearer wrong"}, 200),
        ({"Authorization": KEY}, 401),
        ({"Authorization": f"Basic {KEY}"}, 401),
        ({"Authorization": f"Bearer {KEY}x"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"x-api-key": ""}, 401),
        ({"x-api-key": KEY.upper()}, 401),
    ],
)
def test_keys(headers: dict[str, str], status: int) -> None:
    with serving(fake_parts(api_key=KEY)) as live:
        assert live.call("GET", "/v1/models", headers=headers).status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8000", 200),
        ("host.docker.internal:8000", 200),
        ("host.containers.internal", 200),
        ("gateway.docker.internal", 200),
        ("host.docker.internal.evil.example", 403),
        ("evil.host.docker.internal", 403),
        ("host.internal", 403),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("127.evil", 403),
        ("10.0.0.1", 403),
        ("a/?x=", 400),
        ("127.0.0.1:8000/health?", 400),
        ("127.0.0.1@evil.example", 400),
        ("", 400),
    ],
)
def test_hosts_on_loopback(host: str, status: int) -> None:
    with serving(fake_parts()) as live:
        reply = live.get("/v1/models", Host=host)
        assert reply.status == status
        if status != 200:
            assert reply.error["code"] == "invalid_host"


def test_a_host_header_cannot_make_a_path_public() -> None:
    with serving(fake_parts(api_key=KEY, loopback_only=False)) as live:
        for host in ("x/health?", "x/health#", "127.0.0.1/health?a="):
            assert live.get("/v1/models", Host=host).status == 400
        assert live.get("/v1/models", Host="some.example").status == 401
        assert live.get("/v1/models", Host="some.example", x_api_key=KEY).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8000", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost.evil.example", 403),
        ("http://[bad", 403),
    ],
)
def test_pages_of_other_sites_cannot_use_a_server_on_loopback(origin: str, status: int) -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine)) as live:
        body = {"model": "org/fake-model", "prompt": "x"}
        assert live.post("/v1/completions", body, Origin=origin).status == status
        assert bool(engine.prompts) == (status == 200)


@pytest.mark.parametrize(
    ("path", "fetch", "status"),
    [
        ("/v1/models", {"site": "cross-site", "mode": "no-cors", "dest": "image"}, 403),
        ("/v1/engine/steps?frames=1", {"site": "cross-site", "mode": "no-cors", "dest": "script"}, 403),
        ("/v1/engine/steps?frames=1", {"site": "cross-site", "mode": "navigate", "dest": "document"}, 403),
        ("/v1/engine/steps?frames=1", {"site": "CROSS-SITE"}, 403),
        ("/metrics", {"site": "cross-site", "mode": "navigate", "dest": "document"}, 403),
        ("/", {"site": "cross-site", "mode": "navigate", "dest": "iframe"}, 403),
        ("/", {"site": "cross-site", "mode": "no-cors", "dest": "image"}, 403),
        ("/", {"site": "cross-site", "mode": "navigate", "dest": "document"}, 200),
        ("/", {"site": "none", "mode": "navigate", "dest": "document"}, 200),
        ("/v1/engine/steps?frames=1", {"site": "same-origin", "mode": "cors", "dest": "empty"}, 200),
        ("/v1/models", {"site": "same-site", "mode": "cors", "dest": "empty"}, 200),
        ("/v1/models", {}, 200),
    ],
)
def test_pages_of_other_sites_cannot_get_anything_but_a_link_to_the_page(
    path: str, fetch: dict[str, str], status: int
) -> None:
    with serving(fake_parts()) as live:
        reply = live.get(path, **{f"sec_fetch_{name}": value for name, value in fetch.items()})
        assert reply.status == status
        if status == 403:
            assert reply.error["code"] == "invalid_origin"


def test_behind_a_proxy_the_key_decides_and_not_the_site() -> None:
    with serving(fake_parts(api_key=KEY, loopback_only=False)) as live:
        assert live.get("/v1/models", sec_fetch_site="cross-site").status == 401
        assert live.get("/v1/models", sec_fetch_site="cross-site", x_api_key=KEY).status == 200


def test_without_the_option_no_cors_header_is_sent() -> None:
    with serving(fake_parts()) as live:
        reply = live.call("OPTIONS", "/v1/completions", headers={"Origin": "http://localhost"})
        assert reply.status == 405
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_request_ids(caplog: pytest.LogCaptureFixture) -> None:
    with serving(fake_parts()) as live:
        assert live.get("/health", x_request_id="abc-1.2_3").headers["x-request-id"] == "abc-1.2_3"
        ids = {live.get("/health", x_request_id=bad).headers["x-request-id"] for bad in ("", "a b", "x" * 129, "a\tb")}
        assert len(ids) == 4
        assert all(len(made) == 32 for made in ids)
        assert live.get("/nothing").headers["x-request-id"]


def test_two_requests_with_one_id_do_not_meet() -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine)) as live:
        for _ in range(2):
            assert (
                live.post("/v1/completions", {"model": "org/fake-model", "prompt": "x"}, x_request_id="same").status
                == 200
            )
    assert len({prompt.request_id for prompt in engine.prompts}) == 2


def test_an_unforeseen_error_is_logged_with_the_request_id_and_answered_as_a_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FakeEngine()
    engine.error = RuntimeError("secret detail")
    with caplog.at_level(logging.ERROR), serving(fake_parts(engine)) as live:
        reply = live.chat()
    assert reply.status == 500
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert b"secret" not in reply.body
    assert reply.headers["x-request-id"] in caplog.text
    assert "secret detail" in caplog.text


@given(st.binary(max_size=40))
def test_host_name_never_lets_through_more_than_a_name(header: bytes) -> None:
    name = host_name(header)
    assert name is None or not set(name) & set("/?#@\\ \t\r\n%")


@given(st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True))
def test_names_that_a_dns_server_could_answer_are_not_loopback(name: str) -> None:
    digits_only = name.replace(".", "").isdigit()
    assert not is_loopback(name) or name == "localhost" or digits_only
