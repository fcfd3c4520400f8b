"""/api/embed and /api/embeddings by the real `ollama` package, with a real model that makes vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ollama import Client, ResponseError

from tests.retrieval.folders import write_embedding
from tests.retrieval.test_server import MODEL, OPTIONS
from tests.serve.harness import Live, serving
from twostroke.server.build import build_server


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("embedding")
    write_embedding(folder)
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as live:
        yield live


def test_vectors_have_unit_length_and_are_those_of_the_other_api(embedding: Live) -> None:
    client = Client(host=embedding.url)
    made = client.embed(MODEL, ["one", "two"])
    ours = embedding.post("/v1/embeddings", {"model": MODEL, "input": ["one", "two"]}).json["data"]
    assert [list(each) for each in made.embeddings] == [each["embedding"] for each in ours]
    assert np.allclose(np.linalg.norm(np.array(made.embeddings), axis=1), 1.0, atol=1e-5)
    short = client.embed(MODEL, "one", dimensions=8)
    assert len(short.embeddings[0]) == 8 and abs(np.linalg.norm(short.embeddings[0]) - 1) < 1e-5
    assert made.prompt_eval_count and made.total_duration and made.load_duration == 0


def test_the_older_path_gives_the_vector_as_it_was_made(embedding: Live) -> None:
    client = Client(host=embedding.url)
    old = np.array(client.embeddings(MODEL, "one").embedding)
    new = np.array(client.embed(MODEL, "one").embeddings[0])
    assert abs(np.linalg.norm(old) - 1) > 1e-3 and np.allclose(old / np.linalg.norm(old), new, atol=1e-5)


def test_long_texts_are_cut_unless_that_is_refused_and_no_text_has_no_vector(embedding: Live) -> None:
    client = Client(host=embedding.url)
    long = "word " * 3000
    assert len(client.embed(MODEL, long).embeddings) == 1
    with pytest.raises(ResponseError) as refused:
        client.embed(MODEL, long, truncate=False)
    assert refused.value.status_code == 400
    assert client.embed(MODEL, "").embeddings == [] and list(client.embeddings(MODEL, "").embedding) == []


def test_a_model_of_vectors_says_so_and_does_not_chat(embedding: Live) -> None:
    client = Client(host=embedding.url)
    assert client.show(MODEL).capabilities == ["embedding"]
    with pytest.raises(ResponseError, match="generate|task"):
        client.chat(MODEL, [{"role": "user", "content": "x"}])
