"""The promises of SECURITY.md that requests can test; docs/promises.md names each test."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from select import select
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tests.serve.fakes import ByteTokenizer, FakeEngine, PlainTemplate, Turnstile, changed, fake_parts
from tests.serve.harness import WAIT_S, Live, serving, wait_until
from twostroke.server.admission import Limits
from twostroke.server.app import create_app
from twostroke.server.build import build_server
from twostroke.server.gate import security
from twostroke.server.gate.security import PUBLIC_PATHS, Gate
from twostroke.server.prompts import Call, salted
from twostroke.types.errors import BackendError, ConfigError, OutOfMemory
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

ALICE, BOB = "alice-key", "bob-key"
SECRET = "<Secret object at 0x7f0011223344> /home/somebody/.token"


CHAT = {"model": "org/fake-model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
GENERATING: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "org/fake-model", "prompt": "hi", "max_tokens": 3},
    "/v1/messages": CHAT,
    "/v1/responses": {"model": "org/fake-model", "input": "hi", "max_output_tokens": 16},
    "/api/chat": {"model": "org/fake-model", "messages": CHAT["messages"], "stream": False},
    "/api/generate": {"model": "org/fake-model", "prompt": "hi", "stream": False},
    "/completion": {"prompt": "hi", "n_predict": 3},
    "/completions": {"prompt": "hi", "n_predict": 3},
}
"""Routes that start work in the engine, each with a body that it takes."""
NOT_GENERATING = {
    "/v1/messages/count_tokens", "/v1/responses/input_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/texts",
    "/v1/mcp/x",
    "/slots/x",  # refused without pages on a disk; it runs a prompt again with the salt that the prompt had
    "/infill",  # a model without tokens for it refuses this, as the fake one does
    *("/v1/files", "/v1/batches", "/v1/batches/x/cancel", "/v1/responses/x/cancel"),  # their lines are other requests
    *("/v1/messages/batches", "/v1/messages/batches/x/cancel"),
    *("/v1/conversations", "/v1/conversations/x", "/v1/conversations/x/items"),
    *("/embedding", "/embeddings", "/rerank", "/reranking", "/v1/reranking"),
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    *(f"/api/{verb}" for verb in ("pull", "push", "me", "signout", "create", "copy", "delete")),
}


def routes() -> list[tuple[str, str]]:
    """(method, path) of all routes, with parameters filled in."""
    app: Any = create_app(fake_parts())
    found = [(method, route.path) for route in app._app._app._app._app.routes for method in sorted(route.methods)]
    return [(method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in found]


def generating_routes() -> list[str]:
    """The routes that are served. A POST route that no list names is an error."""
    posts = {path for method, path in routes() if method == "POST"}
    assert posts <= set(GENERATING) | NOT_GENERATING, "say in GENERATING or NOT_GENERATING what the new route does"
    return sorted(posts & set(GENERATING))


def test_every_route_needs_the_key_unless_it_is_listed_as_public() -> None:
    """Access is denied by default: a new route is closed until it is listed."""
    parts = fake_parts(api_key=ALICE)
    with serving(parts) as live:
        assert len(routes()) >= 7
        for method, path in routes():
            status = live.call(method, path, {} if method == "POST" else None).status
            assert (status != 401) == (path in PUBLIC_PATHS), (method, path, status)
        for path in (
            "/page",
            "/page/",
            "/nothing",
            "/v1",
            "/health/x",
            "/HEALTH",
            "/docs",
            "/openapi.json",
        ):
            assert live.get(path).status == 401, path


@pytest.mark.parametrize("sent", ["", "x", ALICE, ALICE[:-1], "y" * 5000, BOB])
def test_all_comparisons_run_on_digests_of_one_length(sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        seen.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(security.hmac, "compare_digest", spy)
    with serving(fake_parts(api_key=f"{ALICE},{BOB}")) as live:
        live.get("/v1/models", Authorization=f"Bearer {sent}")
    assert seen == [(32, 32)] * 6  # two keys and three headers, whatever came


@pytest.mark.parametrize("key", ["", " ", "a,", ",a", "a,,b"])
def test_an_empty_key_is_no_key(key: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        create_app(fake_parts(api_key=key))


def test_each_of_several_keys_opens() -> None:
    with serving(fake_parts(api_key=f"{ALICE}, {BOB}")) as live:
        for key, status in ((ALICE, 200), (BOB, 200), (f"{ALICE},{BOB}", 401), (f"{ALICE}, {BOB}", 401), ("", 401)):
            assert live.get("/v1/models", Authorization=f"Bearer {key}").status == status


def test_only_http_comes_in() -> None:
    reached: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is sent or read")

    for kind in ("websocket", "lifespan", "other"):
        asyncio.run(Gate(app, None, True)({"type": kind, "path": "/health", "headers": []}, nothing, nothing))
    assert reached == []


# Prefix pages


def test_keys_never_share_prefix_pages_on_any_route() -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine, api_key=f"{ALICE},{BOB}")) as live:
        for path in generating_routes():
            for salt in (None, "", "s", "a" * 16 + ":s"):
                salts = {}
                for key in (ALICE, BOB):
                    engine.prompts.clear()
                    for _ in range(2):
                        sent = {**GENERATING[path], "cache_salt": salt}
                        assert live.post(path, sent, Authorization=f"Bearer {key}").status == 200
                    (salts[key],) = {prompt.cache_salt for prompt in engine.prompts}
                assert salts[ALICE] != salts[BOB]
                assert ALICE not in salts[ALICE] and BOB not in salts[BOB]


LABELS = st.text("0123456789abcdef", min_size=16, max_size=16)


@given(LABELS, LABELS, st.text(max_size=40), st.text(max_size=40))
def test_no_salt_reaches_into_another_keys_pages(one: str, other: str, salt: str, guess: str) -> None:
    def salt_of(label: str, text: str) -> str:
        call = Call("id", 0, (Prompt((1,), SamplingParams(), cache_salt=text),))
        return salted(call, label).prompts[0].cache_salt

    assert (salt_of(one, salt) == salt_of(other, guess)) == ((one, salt) == (other, guess))


@pytest.fixture(scope="module")
def spark() -> Iterator[Live]:
    options = {"kv_memory": "20MB", "threads": 1, "api_key": f"{ALICE},{BOB}"}
    with build_server("spark", options) as built, serving(built.parts) as live:
        yield live


def test_one_keys_prompt_is_never_another_keys_cache_hit(spark: Live) -> None:
    body = {"model": "spark", "prompt": "one two three four five six seven " * 12, "max_tokens": 1}

    def cached(key: str, **more: Any) -> int:
        reply = spark.post("/v1/completions", {**body, **more}, Authorization=f"Bearer {key}")
        assert reply.status == 200
        found: int = reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert cached(ALICE) == 0
    assert cached(ALICE) > 0
    assert cached(BOB) == 0
    assert cached(ALICE, cache_salt="own") == 0


# Errors


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error",
    [RuntimeError(SECRET), KeyError(SECRET), OutOfMemory(SECRET), BackendError(SECRET, why=SECRET), OSError(5, SECRET)],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["template", "tokenizer", "engine", "engine later", "prepare"])
def test_no_exceptions_text_reaches_a_client(
    where: str, error: Exception, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine()

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    async def fail_later(*_: Any) -> Any:
        raise error

    parts = fake_parts(engine)
    if where == "template":
        template = PlainTemplate()
        template.render = fail  # type: ignore[method-assign]
        parts = changed(parts, template=template)
    elif where == "tokenizer":
        tokenizer = ByteTokenizer()
        tokenizer.encode_rendered = fail  # type: ignore[method-assign]
        parts = changed(parts, tokenizer=tokenizer)
    elif where == "prepare":
        engine.prepare = fail_later  # type: ignore[method-assign]
    else:
        engine.error, engine.error_after = error, 2 if where == "engine later" else 0
    with caplog.at_level(logging.ERROR), serving(parts) as live:
        reply = live.chat(stream=stream)
        assert live.get("/health").status == 200
    assert b"Secret" not in reply.body and b"0x7f" not in reply.body and b"home" not in reply.body
    assert b"internal_error" in reply.body
    assert reply.status == (200 if stream and where == "engine later" else 500)


def test_a_templates_fault_names_no_object(spark: Live) -> None:
    """The messages of Jinja and Python contain objects: `'dict object' has no attribute`, `<Undefined at 0x...>`."""
    from twostroke.text.templates.chat_template import ChatTemplate
    from twostroke.types.errors import InvalidRequest

    for source in ("{{ messages + 1 }}", "{{ messages[0].nothing.more }}", "{{ ''.join(messages) }}", "{{ [].x() }}"):
        with pytest.raises(InvalidRequest) as caught:
            ChatTemplate({"default": source}, {}).render([{"role": "user", "content": SECRET}])
        assert not any(word in str(caught.value) for word in ("object", "attribute", "0x", "Undefined", "Secret"))


# Work outside the event loop


def test_a_template_that_hangs_does_not_hold_up_the_loop() -> None:
    """While one request's template hangs, others are answered. A later answer releases the template."""
    rendering, answered = threading.Event(), threading.Event()

    class Waiting(PlainTemplate):
        def render(self, messages: Any, **named: Any) -> str:
            rendering.set()
            assert answered.wait(WAIT_S)
            return super().render(messages)

    with serving(fake_parts(template=Waiting())) as live:
        replies: list[int] = []
        slow = threading.Thread(target=lambda: replies.append(live.chat().status))
        slow.start()
        assert rendering.wait(WAIT_S)
        assert live.get("/health").status == 200
        assert live.complete().status == 200
        answered.set()
        slow.join()
        assert replies == [200]


@pytest.mark.parametrize("name", ["chat_template", "messages", "tokenize", "add_generation_prompt", "bos_token", "x"])
def test_a_request_brings_no_template_and_replaces_none_of_its_names(name: str, spark: Live) -> None:
    body = {"model": "spark", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    body["chat_template_kwargs"] = {name: "{{ 1 }}"}
    reply = spark.post("/v1/chat/completions", body, Authorization=f"Bearer {ALICE}")
    assert (reply.status, reply.error["param"]) == (400, "chat_template_kwargs")


# Caps before work


@pytest.mark.parametrize(
    "fields",
    [{"n": 10**9}, {"n": 129}, {"best_of": 10**6}, {"prompt": ["a"] * 65}, {"prompt": ["a"] * 64, "n": 128}, {"n": -1}],
)
def test_a_fan_out_beyond_the_caps_reaches_no_engine(fields: dict[str, Any]) -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine)) as live:
        assert live.complete(**fields).status == 400
    assert engine.prompts == []


def test_too_many_headers_are_431_and_too_large_ones_end_the_connection() -> None:
    with serving(fake_parts()) as live:
        assert live.call("GET", "/health", headers={f"x-{i}": "1" for i in range(60)}).status == 200
        reply = live.call("GET", "/health", headers={f"x-{i}": "1" for i in range(101)})
        assert (reply.status, reply.error["code"]) == (431, "too_many_headers")
        with socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"a" * 100_000)
            try:
                assert b" 200 " not in connection.recv(4096)
            except ConnectionError:
                pass  # it closed while bytes were still on their way to it
        assert live.get("/health").status == 200


@pytest.mark.parametrize("start", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"])
def test_headers_that_do_not_arrive_end_the_connection(start: bytes) -> None:
    """A byte now and then does not help, because the deadline is for all headers together."""
    with serving(fake_parts(limits=Limits(header_s=0.3))) as live:
        with socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S) as connection:
            connection.sendall(start)
            assert ended(connection, b"x")
        assert live.get("/health").status == 200


def test_the_deadline_is_for_headers_not_for_answers_or_pauses() -> None:
    engine = FakeEngine()
    engine.gate = gate = Turnstile()
    body = b'{"model": "org/fake-model", "prompt": "x"}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)

    def answered(connection: socket.socket) -> bool:
        """Whether one request was answered whose answer takes longer than the deadline. False where its head was not
        sent in time."""
        before = len(engine.prompts)
        connection.sendall(head + body)
        wait_until(lambda: len(engine.prompts) > before or ends(connection), "the request or the end")
        if len(engine.prompts) == before:
            return False
        time.sleep(0.4)
        gate.let(live.loop, 12)
        reply = HTTPResponse(connection)
        reply.begin()
        assert reply.status == 200 and b'"usage"' in reply.read()
        return True

    with serving(fake_parts(engine, limits=Limits(header_s=0.3))) as live:
        for _ in range(20):  # a machine that stood still may have missed the time for the first head
            with socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S) as connection:
                if not answered(connection):
                    continue
                time.sleep(0.5)  # no part of a further request has come, so this concerns keep-alive
                assert answered(connection)
                connection.sendall(b"GET /hea")
                assert ended(connection, b"l")
                return
        raise AssertionError("no head came in time")


def ends(connection: socket.socket) -> bool:
    """Whether the other side has closed without sending anything else."""
    return bool(select([connection], [], [], 0)[0])


def ended(connection: socket.socket, drip: bytes) -> bool:
    """Whether the other side closes while a byte is sent now and then."""
    connection.settimeout(0.1)
    for _ in range(600):
        try:
            if connection.recv(4096) == b"":
                return True
        except TimeoutError:
            pass
        except OSError:
            return True
        try:
            connection.sendall(drip)
        except OSError:
            return True
    return False
