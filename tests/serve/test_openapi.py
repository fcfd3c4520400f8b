"""schemathesis against the server's own OpenAPI document: what it says holds for requests that nobody thought of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.serve.fakes import MODEL, fake_parts
from tests.serve.harness import Live, serving
from twostroke.server.app import routes_of
from twostroke.server.openapi import openapi_document

CHECKS: Any = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
EXAMPLES = 40
NEEDED = ("model", "messages", "prompt", "input", "tokens")
SHORT: dict[str, dict[str, Any]] = {"/v1/messages": {"max_tokens": 4}, "/tokenize": {"model": MODEL, "prompt": "a"}}
DOCUMENT = json.loads(json.dumps(openapi_document(fake_parts())))
SCHEMA: Any = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [(result.ok().path, result.ok().method) for result in SCHEMA.get_all_operations()]
TYPED = [(path, method) for path, method in OPERATIONS if method == "post" and path != "/v1/embeddings"]
CASES = [(*each, GenerationMode.POSITIVE) for each in OPERATIONS] + [(*each, GenerationMode.NEGATIVE) for each in TYPED]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with serving(fake_parts()) as live:
        yield live


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_operation_holds_what_the_document_says(server: Live, path: str, method: str, mode: Any) -> None:
    operation = SCHEMA[path][method]

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if isinstance(case.body, dict):  # the fake engine keeps no objectives
            case.body = {key: value for key, value in case.body.items() if key not in ("ttft_s", "itl_s")}
        statuses.append(case.call_and_validate(base_url=server.url, checks=CHECKS).status_code)
        if mode is GenerationMode.POSITIVE and statuses[-1] == 400 and isinstance(case.body, dict):
            # Fields that are right one by one seldom go together: once more with those that every answer needs.
            body = {key: value for key, value in case.body.items() if key in NEEDED} | SHORT.get(path, {})
            case.body = {key: value for key, value in body.items() if key != "messages" or "prompt" not in body}
            statuses.append(case.call_and_validate(base_url=server.url, checks=CHECKS).status_code)

    statuses: list[int] = []
    check()
    if (path, method) in TYPED and mode is GenerationMode.POSITIVE:
        assert 200 in statuses, "no request got past the checks, so no answer was looked at"


def test_the_document_names_every_route_and_no_other(server: Live) -> None:
    paths = {route.path.replace("{name:path}", "{name}") for route in routes_of(server.parts)}
    assert paths - {"/openapi.json"} == set(DOCUMENT["paths"])
    assert server.get("/openapi.json").json["info"]["version"] == "1.2.3"


def test_the_document_is_an_openapi_document() -> None:
    SCHEMA.validate()
    assert DOCUMENT["paths"]["/v1/chat/completions"]["post"]["requestBody"]["required"]
    assert MODEL in json.dumps(DOCUMENT["paths"])
