"""GET /v1/models: the names of one model, its context under the names that clients read, and requests without a
model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import CONTEXT, fake_parts
from tests.serve.harness import Live, serving
from twostroke.assembly.settings.config import resolve_server
from twostroke.assembly.settings.resolver import Resolver, collect

MESSAGES = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
ASKS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": MESSAGES,
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": MESSAGES,
}
OTHERS: dict[str, dict[str, Any]] = {
    "/v1/messages/count_tokens": {"messages": MESSAGES["messages"]},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [97]},
}


@pytest.fixture(scope="module")
def named() -> Iterator[Live]:
    with serving(fake_parts(served_name="one", other_names=("org/two",))) as live:
        yield live


def test_the_context_has_the_names_that_clients_read(named: Live) -> None:
    for path in ("/v1/models/one", "/v1/models/org/two"):
        model = named.get(path).json
        names = ("max_model_len", "context_length", "max_context_length", "loaded_context_length", "context_window")
        assert {model[name] for name in names} == {CONTEXT}
        assert model["meta"]["n_ctx"] == model["top_provider"]["context_length"] == CONTEXT


def test_all_names_are_listed(named: Live) -> None:
    found = named.get("/v1/models").json
    assert [model["id"] for model in found["data"]] == ["one", "org/two"]
    assert not any("parent" in model for model in found["data"]) and found["last_id"] == "org/two"


@pytest.mark.parametrize("path", ASKS)
def test_each_name_answers_and_none_is_the_only_model(named: Live, path: str) -> None:
    for asked, name in (({"model": "one"},) * 2, ({"model": "org/two"},) * 2, ({}, {"model": "one"})):
        reply = named.post(path, {**ASKS[path], **asked})
        assert (reply.status, reply.json["model"]) == (200, name["model"])
    for nothing in (None, ""):
        assert named.post(path, {**ASKS[path], "model": nothing}).json["model"] == "one"
    assert named.post(path, {**ASKS[path], "model": "three"}).status == 404


@pytest.mark.parametrize("path", OTHERS)
def test_what_generates_nothing_needs_no_name_either(named: Live, path: str) -> None:
    for asked in ({}, {"model": None}, {"model": "one"}, {"model": "org/two"}):
        assert named.post(path, {**OTHERS[path], **asked}).status == 200
    assert named.post(path, {**OTHERS[path], "model": "three"}).status == 404


def test_names_of_the_option() -> None:
    resolver = Resolver(collect({"served_name": " a, org/b ,a"}, {}))
    resolve_server(resolver, "m")
    assert (resolver.resolved()["served_name"], resolver.resolved()["other_names"]) == ("a", ("org/b",))
    resolver = Resolver(collect({}, {}))
    resolve_server(resolver, "m")
    assert (resolver.resolved()["served_name"], resolver.resolved()["other_names"]) == ("m", ())
