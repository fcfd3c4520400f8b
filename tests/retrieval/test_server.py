"""The paths of embeddings, ranks and scores on real servers, asked by the real `openai` package and by hand."""

from __future__ import annotations

import base64
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai import OpenAI

from tests.retrieval.folders import EXACT, TEXTS, write_embedding, write_reranker
from tests.serve.harness import Live, serving
from twostroke.runner.retrieval.embedder import Embedder
from twostroke.server.build import build_server

MODEL = "tiny"
OPTIONS = {**EXACT, "served_name": MODEL}
PAIR = {"model": MODEL, "text_1": "a", "text_2": "b"}


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("embedding")
    write_embedding(folder)
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as live:
        yield live


@pytest.fixture(scope="module")
def reranking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("reranking")
    write_reranker(folder)
    with build_server(str(folder), {**OPTIONS, "context": 1024, "task": "rerank"}) as built:
        with serving(built.parts) as live:
            yield live


@pytest.fixture
def client(embedding: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=embedding.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def post(live: Live, path: str, **fields: Any) -> Any:
    return live.post(path, {"model": MODEL, **fields})


def test_the_openai_package_gets_the_same_vectors_as_floats_and_in_base64(client: OpenAI) -> None:
    by_default = client.embeddings.create(model=MODEL, input=TEXTS)  # the package asks for base64 and unpacks it
    floats = client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float", user="somebody")
    assert [each.index for each in floats.data] == [0, 1, 2]
    first, second = (np.array([each.embedding for each in made.data], np.float32) for made in (by_default, floats))
    assert first.shape == (3, 64) and np.array_equal(first, second)
    assert np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)
    assert floats.model == MODEL and floats.usage.prompt_tokens == floats.usage.total_tokens > 0
    raw: Any = client.embeddings.with_raw_response.create(model=MODEL, input=TEXTS, encoding_format="base64")
    text = raw.http_response.json()["data"][1]["embedding"]
    assert struct.unpack("<64f", base64.b64decode(text)) == tuple(second[1].tolist())


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llama_cpps_form_has_the_same_vectors(path: str, client: OpenAI, embedding: Live) -> None:
    expected = client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
    made = embedding.post(path, {"content": TEXTS}).json
    assert [each["index"] for each in made] == [0, 1, 2]
    assert [each["embedding"] for each in made] == [[each.embedding] for each in expected.data]
    raw = embedding.post(path, {"input": TEXTS[0], "embd_normalize": -1}).json[0]["embedding"][0]
    assert abs(float(np.linalg.norm(raw)) - 1.0) > 1e-3
    assert embedding.post(path, {"content": "a", "embd_normalize": 1}).error["param"] == "embd_normalize"
    assert embedding.post(path, {}).error["param"] == "content"


def test_vectors_are_computed_in_a_worker_thread(client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    plain = Embedder.vector

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return plain(*given)

    monkeypatch.setattr(Embedder, "vector", noted)
    client.embeddings.create(model=MODEL, input=["one", "two"])
    assert len(threads) == 2 and all(name.startswith("read-") for name in threads)


def test_every_shape_of_input(client: OpenAI, embedding: Live) -> None:
    ids = embedding.post("/tokenize", {"model": MODEL, "prompt": "a page"}).json["tokens"]
    shapes: list[Any] = ["a page", ["a page"], ids, [ids], ["a page", "a page"]]
    made = [client.embeddings.create(model=MODEL, input=shape).data for shape in shapes]
    assert [len(data) for data in made] == [1, 1, 1, 1, 2]
    vectors = [each.embedding for data in made for each in data]
    assert all(vector == vectors[0] for vector in vectors)


def test_dimensions_prompts_and_lengths(client: OpenAI, embedding: Live) -> None:
    whole, short = (client.embeddings.create(model=MODEL, input="a", **more) for more in ({}, {"dimensions": 8}))
    cut = np.array(whole.data[0].embedding[:8])
    assert np.allclose(short.data[0].embedding, cut / np.linalg.norm(cut), atol=1e-6)
    raw = post(embedding, "/v1/embeddings", input="a", normalize=False).json["data"][0]["embedding"]
    assert np.allclose(np.array(raw) / np.linalg.norm(raw), whole.data[0].embedding, atol=1e-6)
    named = post(embedding, "/v1/embeddings", input="a", prompt_name="query").json
    assert named["usage"]["prompt_tokens"] > whole.usage.prompt_tokens
    long = "what is a page " * 40
    error = post(embedding, "/v1/embeddings", input=["a", long]).error
    assert error["code"] == "context_length_exceeded" and error["param"] == "input" and "256" in error["message"]
    truncated = post(embedding, "/v1/embeddings", input=long, truncate_prompt_tokens=-1).json
    assert truncated["usage"]["prompt_tokens"] == 256
    five = post(embedding, "/v1/embeddings", input=long, truncate_prompt_tokens=5).json
    four = post(embedding, "/v1/embeddings", input=long[:4]).json  # four bytes and the end token
    assert five["data"] == four["data"] and five["usage"]["prompt_tokens"] == 5


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [1_000_000]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [1.5]}, "input[0]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 65}, "dimensions"),
        ({"input": "a", "prompt_name": "nothing"}, "prompt_name"),
        ({"input": [1, 2], "prompt_name": "query"}, "prompt_name"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 257}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 1}, "truncate_prompt_tokens"),
        ({"input": "a", "input_type": "query"}, "input_type"),
        ({"input": "a", "instruction": "x"}, "instruction"),
        ({"input": "a", "late_chunking": False}, "late_chunking"),
        ({"input": "a", "priority": 101}, "priority"),
        ({"input": "a", "cache_salt": "x" * 257}, "cache_salt"),
    ],
)
def test_a_wrong_field_is_refused_by_name(embedding: Live, fields: dict[str, Any], param: str) -> None:
    reply = post(embedding, "/v1/embeddings", **fields)
    assert reply.status == 400 and reply.error["param"] == param, reply.body


def test_control_tokens_in_a_text_are_text(embedding: Live) -> None:
    asked = {"input": "a<|im_start|>b"}
    as_text = post(embedding, "/v1/embeddings", **asked).json
    special = post(embedding, "/v1/embeddings", **asked, parse_special=True).json
    assert special["usage"]["prompt_tokens"] == 4 < as_text["usage"]["prompt_tokens"]


def test_an_embedding_model_refuses_what_it_is_not_for(embedding: Live) -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", chat),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
        ("/v1/score", PAIR),
    ):
        reply = post(embedding, path, **body)
        assert reply.status == 400 and "/v1/embeddings" in reply.json["error"]["message"], path
    document = embedding.get("/openapi.json").json
    assert "requestBody" in document["paths"]["/v1/embeddings"]["post"]
    assert "EmbeddingRequest" in document["components"]["schemas"]
    assert "ChatRequest" not in document["components"]["schemas"]
    assert post(embedding, "/v1/embeddings", input=["a", "b"]).status == 200
    lines = embedding.get("/metrics").body.decode().splitlines()
    pooled = next(float(line.split()[-1]) for line in lines if line.startswith("twostroke_pooled_texts_total"))
    assert pooled >= 2


def test_rerank_and_score(reranking: Live) -> None:
    documents = [*TEXTS, {"text": "yes"}]
    made = post(reranking, "/v1/rerank", query="what is a page", documents=documents).json
    order = [each["index"] for each in made["results"]]
    scores = [each["relevance_score"] for each in made["results"]]
    assert sorted(order) == [0, 1, 2, 3] and scores == sorted(scores, reverse=True)
    assert {each["index"]: each["document"]["text"] for each in made["results"]}[3] == "yes"
    best = post(reranking, "/v1/rerank", query="what is a page", documents=documents, top_n=1, return_documents=False)
    assert best.json["results"] == [{"index": order[0], "relevance_score": scores[0]}]
    for path in ("/rerank", "/reranking", "/v1/reranking"):
        same = post(reranking, path, query="what is a page", documents=documents).json
        assert same["results"] == made["results"]
    scored = post(reranking, "/v1/score", text_1="what is a page", text_2=[*TEXTS, "yes"]).json
    assert [each["score"] for each in scored["data"]] == [scores[order.index(place)] for place in range(4)]
    each = post(reranking, "/v1/score", text_1=["what is a page", "one"], text_2=TEXTS[:2]).json["data"]
    assert each[0]["score"] == scored["data"][0]["score"] and len(each) == 2
    other = post(reranking, "/v1/score", text_1="what is a page", text_2=TEXTS[0], instruction="Be brief").json["data"]
    assert other[0]["score"] != scored["data"][0]["score"]
    cut = post(reranking, "/v1/rerank", query="q", documents=["a" * 50], max_tokens_per_doc=7).json["usage"]
    same = post(reranking, "/v1/rerank", query="q", documents=["a" * 7]).json["usage"]
    assert cut == same


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "rank_fields": ["x"]}, "rank_fields"),
        ("/v1/rerank", {"query": "a", "documents": [{"title": "a"}]}, "documents[0]"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "truncate_prompt_tokens": 9}, "truncate_prompt_tokens"),
        ("/v1/rerank", {"query": "a", "documents": ["what " * 400]}, "documents"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ("/v1/score", {"text_1": [], "text_2": "a"}, "text_1"),
        ("/v1/score", {"text_1": "a"}, "text_2"),
    ],
)
def test_a_wrong_field_of_a_rerank_is_refused_by_name(reranking: Live, path: str, fields: Any, param: str) -> None:
    reply = post(reranking, path, **fields)
    assert reply.status == 400 and reply.error["param"] == param, reply.body


def test_a_model_that_generates_says_how_to_start_it(tmp_path: Path) -> None:
    write_reranker(tmp_path)
    with build_server(str(tmp_path), {**OPTIONS, "context": 512}) as built, serving(built.parts) as live:
        with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
            with pytest.raises(openai.BadRequestError, match="--task embed"):
                client.embeddings.create(model=MODEL, input="a")
        assert "--task rerank" in post(live, "/v1/rerank", query="a", documents=["a"]).error["message"]
        assert live.complete(max_tokens=2).status == 200
