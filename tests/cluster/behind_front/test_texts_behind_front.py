"""Vectors, scores and adapters on a front have the same bits as in one process, and refusals have the same words."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.random_lora import write_random_lora
from tests.cluster.in_process import no_word
from tests.fleet.world import request_of
from tests.retrieval.folders import write_embedding, write_reranker
from tests.serve.harness import Live, serving
from twostroke.assembly.processes.replica import ReplicaEndpoint, build_replica, why_not
from twostroke.assets import spark_path
from twostroke.distributed.fleet.fixed_adapters import FixedAdapters
from twostroke.runner.folder import read_folder
from twostroke.server.build import build_server
from twostroke.server.build_front import build_front
from twostroke.types.errors import ConfigError, InvalidRequest
from twostroke.types.pooling import PooledRows, Pooling, Task

TEXTS = ["What is prefill?", "Decode writes the answer, one token after the other."]
EXACT = {"threads": 1, "kv_memory": "32MB", "weights": "f32"}


@contextmanager
def behind_front(model: str, own: dict[str, Any], options: dict[str, Any]) -> Iterator[Live]:
    """A front with two replicas in this process. own: options that the front reads too."""
    with ExitStack() as stack:
        addresses = []
        for name in ("r0", "r1"):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            built = build_replica(model, {**options, **own}, ReplicaEndpoint(listener, name, "s"), no_word)
            stack.enter_context(built.heart)
            thread = threading.Thread(target=built.replica.serve)
            thread.start()
            stack.callback(thread.join, 20)
            stack.callback(built.replica.stop)
            addresses.append(listener.getsockname()[:2])
        front = stack.enter_context(build_front(model, own, addresses, "s", no_word))
        yield stack.enter_context(serving(front.parts))


@pytest.mark.parametrize(
    ("kind", "own", "path", "body", "key"),
    [
        ("vectors", {}, "/v1/embeddings", {"input": TEXTS}, "data"),
        ("vectors", {}, "/api/embed", {"input": TEXTS}, "embeddings"),
        ("scores", {"task": "rerank"}, "/v1/rerank", {"query": "prefill", "documents": TEXTS}, "results"),
    ],
)
def test_vectors_and_scores_are_those_of_one_process(
    kind: str, own: dict[str, Any], path: str, body: dict[str, Any], key: str, tmp_path: Path
) -> None:
    {"vectors": write_embedding, "scores": write_reranker}[kind](tmp_path / kind)
    options, folder = EXACT | ({"context": 1024} if own else {}), str(tmp_path / kind)
    with build_server(folder, {**options, **own}) as built, serving(built.parts) as live:
        expected = live.post(path, {"model": kind, **body}).json[key]
    with behind_front(folder, own, options) as live:
        for _ in range(3):
            assert live.post(path, {"model": kind, **body}).json[key] == expected
        assert live.post("/v1/chat/completions", {"model": kind, "messages": []}).status == 400


def test_adapters_are_those_of_one_process(tmp_path: Path) -> None:
    model = read_folder(spark_path())
    for seed, name in enumerate(("a", "b")):
        write_random_lora(tmp_path / name, model, ("q_proj", "down_proj"), seed=seed, size=0.3)
    options = {"threads": 1, "kv_memory": "20MB", "adapter": [f"{each}={tmp_path / each}" for each in ("a", "b")]}
    asked = {"prompt": "What is prefill?", "max_tokens": 12, "seed": 3, "logprobs": 2}

    def answers(live: Live) -> list[Any]:
        assert [each["id"] for each in live.get("/v1/models").json["data"]] == ["spark", "a", "b"]
        replies = [live.complete(model=name, **asked) for name in ("spark", "a", "b", "a")]
        return [reply.json["choices"] for reply in replies]

    with build_server("spark", options) as built, serving(built.parts) as live:
        expected = answers(live)
    with behind_front("spark", {}, options) as live:
        assert answers(live) == expected
        assert live.post("/v1/load_lora_adapter", {"lora_name": "c", "lora_path": "c"}).status == 404
    assert expected[0] != expected[1] != expected[2] != expected[0]


def test_replicas_load_no_adapters_later(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConfigError) as caught:
        build_replica("spark", {"adapter_folder": str(tmp_path)}, ReplicaEndpoint(listener, "r", "s"), no_word)
    assert "--adapter-folder" in str(caught.value)


def test_a_front_cannot_ask_for_what_a_replica_has_not() -> None:
    """A front that knows the secret still gets its messages checked before they become arrays."""
    plain = request_of(random.Random(1), "a", 0.0)
    pooled = replace(plain, pooling=PooledRows(Pooling.LAST))
    assert why_not(Task.GENERATE, 0, plain) == ""
    assert why_not(Task.EMBED, 0, pooled) == ""
    assert "task" in why_not(Task.GENERATE, 0, pooled)
    assert "task" in why_not(Task.EMBED, 0, plain)
    assert why_not(Task.GENERATE, 2, replace(plain, adapter=1)) == ""
    for slot in (2, -2, 1 << 40):
        assert "adapter" in why_not(Task.GENERATE, 2, replace(plain, adapter=slot))


def test_adapters_of_a_front_are_slots_in_order() -> None:
    known = FixedAdapters(["x", "y"])
    assert [known.take(name).slot for name in ("x", "y")] == [0, 1]
    assert known.take("x").salt != known.take("y").salt
    assert (known.places, known.name_of(1)) == (2, "y")
    with pytest.raises(InvalidRequest):
        known.check("z")
