"""schemathesis with the server's own OpenAPI document, which must be true of generated requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
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
from tests.tiers import fewer
from twostroke.cost.explain.explanation import Advice, Cause, CauseKind, Explanation, Verdict
from twostroke.server.admission import Access
from twostroke.server.api.adapter_routes import LOAD_PATH, UNLOAD_PATH
from twostroke.server.api.ollama.routes import refused_paths
from twostroke.server.api.routes import routes_of
from twostroke.server.build import build_server
from twostroke.server.document.openapi import openapi_document
from twostroke.server.live.routes import live_routes

CHECKS: Any = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
EXAMPLES = fewer(40, quick=10)
NOT_HERE = ("/api/pull", "/infill", "/slots/{name}", "/v1/texts", *refused_paths())
"""Routes that this server does not have, or not for this model. They answer 501 with a reason."""
NEEDED = ("model", "messages", "prompt", "input", "tokens")
SHORT: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"max_tokens": 4},
    "/api/chat": {"model": MODEL, "messages": [{"role": "user", "content": "a"}]},
    "/api/generate": {"model": MODEL, "prompt": "a"},
    "/api/show": {"model": MODEL},
    "/api/pull": {"model": MODEL},
    "/tokenize": {"model": MODEL, "prompt": "a"},
    "/apply-template": {"model": MODEL, "messages": [{"role": "user", "content": "a"}]},
    "/completion": {"model": MODEL, "prompt": "a"},
}
DOCUMENT = json.loads(json.dumps(openapi_document(fake_parts().serving, Access())))
SCHEMA: Any = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [(result.ok().path, result.ok().method) for result in SCHEMA.get_all_operations()]
OF_OLLAMA = (*refused_paths(), "/api/embed", "/api/embeddings")
OF_LLAMA = ("/embedding", "/embeddings", "/rerank", "/reranking", "/v1/reranking", "/infill")
FORMS = ("/v1/files", "/v1/batches")
OF_STORED_WORK = [path for path, _ in OPERATIONS if path.startswith((*FORMS, "/v1/conversations", "/v1/messages/b"))
                  or "{name}/cancel" in path]  # fmt: skip
REFUSED = (
    *("/slots/{name}", "/v1/texts", "/v1/mcp/{name}"), *OF_LLAMA,
    *OF_STORED_WORK, "/v1/embeddings", "/v1/rerank", "/v1/score", LOAD_PATH, UNLOAD_PATH, *OF_OLLAMA
)  # fmt: skip  (by the fake server)
TYPED = [(path, method) for path, method in OPERATIONS if method == "post" and path not in REFUSED]
QUERIED = [("/v1/engine/steps", "get"), ("/v1/engine/trace", "get")]
WRONG = [(*each, GenerationMode.NEGATIVE) for each in [*TYPED, QUERIED[1]]]
CASES = [(*each, GenerationMode.POSITIVE) for each in OPERATIONS] + WRONG
STREAMING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
EXPLAIN = "/v1/requests/{name}/explain"
WHY = Explanation(
    "x-0/0",
    Verdict.START,
    "It waited.",
    1.0,
    None,
    None,
    3,
    0,
    1,
    {"queue_s": 1.0},
    (Cause(CauseKind.QUEUE, Verdict.START, 1.0, "behind x", ("x",)),),
    (Advice("More threads.", 0.5),),
    "measured",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with serving(fake_parts(explain=lambda asked: [WHY] if len(asked) % 2 else [])) as live:
        yield live


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_operation_holds_what_the_document_says(server: Live, path: str, method: str, mode: Any) -> None:
    operation = SCHEMA[path][method]
    checks = [each for each in CHECKS if each is not not_a_server_error or path not in NOT_HERE]

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if isinstance(case.body, dict):  # the fake engine keeps no objectives
            case.body = {key: value for key, value in case.body.items() if key not in ("ttft_s", "itl_s")}
        if path == "/v1/engine/steps" and mode is GenerationMode.POSITIVE:
            case.query = {"frames": 1}  # the stream has no end of its own
        statuses.append(case.call_and_validate(base_url=server.url, checks=checks).status_code)
        if mode is GenerationMode.POSITIVE and statuses[-1] == 400 and isinstance(case.body, dict):
            # Random fields seldom make a valid request together. So they are tried once more with the fields that every
            # answer needs.
            body = {key: value for key, value in case.body.items() if key in NEEDED} | SHORT.get(path, {})
            case.body = {key: value for key, value in body.items() if key != "messages" or "prompt" not in body}
            statuses.append(case.call_and_validate(base_url=server.url, checks=checks).status_code)
            if statuses[-1] == 200 and path in STREAMING:
                case.body = {**case.body, "stream": True}
                streamed.append(case.call_and_validate(base_url=server.url, checks=checks).headers["content-type"][0])

    streamed: list[str] = []
    statuses: list[int] = []
    check()
    if path in STREAMING and mode is GenerationMode.POSITIVE:
        assert set(streamed) == {"text/event-stream; charset=utf-8"}
    if path == EXPLAIN:
        assert {200, 404} <= set(statuses)
    if (path, method) in [*TYPED, *QUERIED] and mode is GenerationMode.POSITIVE:
        assert 200 in statuses, "no request got past the checks, so no answer was looked at"


def test_the_document_names_every_route_and_no_other(server: Live) -> None:
    routes = [*routes_of(server.parts), *live_routes(server.parts)]
    paths = {route.path.replace("{name:path}", "{name}") for route in routes}
    assert paths - {"/openapi.json"} == set(DOCUMENT["paths"])
    assert server.get("/openapi.json").json["info"]["version"] == "1.2.3"


def test_the_document_is_an_openapi_document() -> None:
    SCHEMA.validate()
    assert DOCUMENT["paths"]["/v1/chat/completions"]["post"]["requestBody"]["required"]
    assert MODEL in json.dumps(DOCUMENT["paths"])


def component(name: str) -> Any:
    return jsonschema_rs.validator_for(
        {**DOCUMENT["components"]["schemas"][name], "components": DOCUMENT["components"]}
    )


def test_what_a_busy_engine_reports_fits_its_schemas() -> None:
    """The fake engine has no figures, so the same schemas are compared with the embedded model's steps, frames and
    ends."""
    with build_server("spark", {"kv_memory": "8MB", "threads": 1}) as built, serving(built.parts) as live:
        for n in (1, 3):
            name = live.chat(max_tokens=20, n=n, temperature=1).json["id"]
        about = live.get("/v1/engine/about").json
        component("EngineAbout").validate(about)
        assert about["model"] == "spark" and about["settings"] and about["limits"]
        (frame, done) = live.get("/v1/engine/steps?frames=1").events
        component("EngineFrame").validate(frame)
        assert done == "[DONE]" and frame["runs"] and frame["ended"] and frame["pages"]
        trace = live.get("/v1/engine/trace").json
        component("EngineTrace").validate(trace)
        assert len(trace["traceEvents"]) > 20
        explained = live.get(f"/v1/requests/{name}/explain").json
        component("Explanation").validate(explained)
        assert len(explained["completions"]) == 3


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "", "1e3", "1_0", "99999999", "%00"])
def test_a_wrong_number_of_frames_is_a_400_that_names_it(server: Live, wrong: str) -> None:
    reply = server.get(f"/v1/engine/steps?frames={wrong}")
    assert (reply.status, reply.error["param"]) == (400, "frames")
