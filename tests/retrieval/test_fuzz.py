"""schemathesis with the OpenAPI documents of an embedding server and of a reranking server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from tests.retrieval.test_server import MODEL, embedding, reranking
from tests.serve.apis.test_openapi import CHECKS
from tests.serve.harness import Live
from tests.tiers import fewer

__all__ = ["embedding", "reranking"]
EXAMPLES = fewer(40, quick=8)
SHORT: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"model": MODEL, "input": "a"},
    "/v1/rerank": {"model": MODEL, "query": "a", "documents": ["b", {"text": "c"}]},
    "/v1/score": {"model": MODEL, "text_1": "a", "text_2": ["b"]},
}
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", SHORT)
def test_a_path_holds_what_its_document_says(embedding: Live, reranking: Live, path: str, mode: GenerationMode) -> None:
    live = embedding if path == "/v1/embeddings" else reranking
    schema: Any = schemathesis.openapi.from_dict(live.get("/openapi.json").json)
    statuses: list[int] = []

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=schema[path]["post"].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        statuses.append(case.call_and_validate(base_url=live.url, checks=CHECKS).status_code)
        if mode is GenerationMode.POSITIVE:
            # Random fields seldom make a valid request together. So they are tried once more with the fields that every
            # answer needs.
            case.body = SHORT[path]
            statuses.append(case.call_and_validate(base_url=live.url, checks=CHECKS).status_code)

    check()
    assert (200 in statuses) == (mode is GenerationMode.POSITIVE), json.dumps(statuses)
