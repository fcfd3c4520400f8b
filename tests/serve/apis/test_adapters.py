"""Adapters by HTTP, on the embedded model: chosen by name, loaded and unloaded, listed, refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.random_lora import write_random_lora
from tests.serve.fakes import MODEL, fake_parts
from tests.serve.harness import Live, Reply, serving, slow_steps, wait_until
from twostroke.assets import spark_path
from twostroke.runner.folder import read_folder
from twostroke.server.build import build_server
from twostroke.types.errors import ConfigError

BEGAN_S = time.time()
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PROMPT = "What is prefill? It is the phase in which the engine reads the whole prompt, many positions at once."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, model = tmp_path_factory.mktemp("adapters"), read_folder(spark_path())
    write_random_lora(made / "a", model, ALL, seed=1)
    write_random_lora(made / "b", model, ["q_proj"], rank=12, seed=2, size=0.3)
    write_random_lora(made / "large", model, ["q_proj"], rank=40)
    (made / "broken").mkdir()
    return made


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    options = {"kv_memory": "20MB", "threads": 2, "adapter": {"a": folder / "a"}, "adapter_folder": folder}
    with build_server("spark", {**options, "max_adapters": 3}) as built, serving(built.parts) as made:
        yield made


def complete(live: Live, model: str, **fields: Any) -> dict[str, Any]:
    reply = live.complete(model=model, prompt=PROMPT, max_tokens=12, logprobs=2, seed=3, ignore_eos=True, **fields)
    assert reply.status == 200, reply.body
    answer: dict[str, Any] = reply.json
    assert answer["model"] == model
    return {key: answer["choices"][0][key] for key in ("text", "logprobs", "finish_reason")}


def names(live: Live) -> list[str]:
    return [each["id"] for each in live.get("/v1/models").json["data"]]


def load(live: Live, name: str, path: str, **fields: Any) -> Reply:
    return live.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **fields})


def test_adapters_are_asked_for_by_name_and_neighbours_change_no_bit(live: Live) -> None:
    assert load(live, "b", "b").status == 200
    wanted = ["spark", "a", "b"]
    alone = {name: complete(live, name) for name in wanted}
    assert len({each["text"] for each in alone.values()}) == 3
    with ThreadPoolExecutor(9) as pool:
        together = list(pool.map(lambda name: complete(live, name), wanted * 3))
    assert together == [alone[name] for name in wanted * 3]
    # An engine without the option for adapters gives the model's own bits.
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as plain:
        assert complete(plain, "spark") == alone["spark"]
    assert live.post("/v1/unload_lora_adapter", {"lora_name": "b"}).status == 200


def test_pages_are_shared_under_one_adapter_alone(live: Live) -> None:
    def cached(model: str) -> int:
        ask = {"model": model, "prompt": "Something else: " + PROMPT, "max_tokens": 1}
        return int(live.post("/v1/completions", ask).json["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("spark") == 0 and cached("a") == 0
    assert cached("spark") > 0 and cached("a") > 0


def test_every_route_takes_the_name_of_an_adapter(live: Live) -> None:
    chat = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    assert live.post("/v1/chat/completions", chat).json["model"] == "a"
    assert live.post("/v1/messages", chat).json["model"] == "a"
    assert live.post("/v1/responses", {"model": "a", "input": "hi", "max_output_tokens": 3}).json["model"] == "a"
    assert live.post("/tokenize", {"model": "a", "prompt": "hi"}).status == 200
    assert live.post("/v1/chat/completions", {**chat, "model": "c"}).error["code"] == "model_not_found"


def test_guesses_change_no_bit_of_an_adapters_answers(live: Live) -> None:
    assert complete(live, "a", speculate="ngram") == complete(live, "a", speculate="off")


def test_adapters_are_loaded_listed_and_unloaded_while_it_serves(live: Live) -> None:
    before = complete(live, "a")
    reply = load(live, "sql", "b")
    assert (reply.status, reply.body) == (200, b"Success: LoRA adapter 'sql' added successfully.")
    assert names(live) == ["spark", "a", "sql"]
    assert live.get("/v1/models/sql").json["parent"] == "spark"
    assert "parent" not in live.get("/v1/models/spark").json
    assert live.get("/openapi.json").status == 200
    assert load(live, "sql", "a").error["code"] is None
    old = complete(live, "sql")
    assert load(live, "sql", "a", load_inplace=True).status == 200
    assert complete(live, "sql") == before != old
    reply = live.post("/v1/unload_lora_adapter", {"lora_name": "sql", "lora_int_id": 7})
    assert (reply.status, reply.body) == (200, b"Success: LoRA adapter 'sql' removed successfully.")
    assert names(live) == ["spark", "a"] and live.get("/v1/models/sql").status == 404


@pytest.mark.parametrize(
    ("name", "path", "param", "needle"),
    [
        ("c", "nothing", "lora_path", "no folder"),
        ("c", "broken", "lora_path", "adapter_config.json"),
        ("c", "large", "lora_path", "rank 40"),
        ("c", "../..", "lora_path", "outside"),
        ("c", "/etc", "lora_path", "outside"),
        ("c", "a\0", "lora_path", "path"),
        ("a", "a", "lora_path", "loaded already"),
        ("spark", "a", "lora_path", "spark"),
        ("", "a", "lora_name", "lora_name"),
    ],
)
def test_what_cannot_be_loaded_is_refused_and_the_engine_goes_on(
    live: Live, name: str, path: str, param: str, needle: str
) -> None:
    reply = load(live, name, path)
    assert reply.status == 400 and reply.error["param"] == param and needle in reply.error["message"]
    assert names(live) == ["spark", "a"] and complete(live, "a")["text"]


def test_wrong_bodies_are_refused(live: Live) -> None:
    assert live.post("/v1/load_lora_adapter", {"lora_name": "c"}).error["param"] == "lora_path"
    assert live.post("/v1/load_lora_adapter", b"{").status == 400
    assert live.post("/v1/unload_lora_adapter", {"lora_name": "nobody"}).status == 404


def test_without_a_folder_clients_change_nothing() -> None:
    with serving(fake_parts()) as made:
        for path, body in (("load", {"lora_name": "c", "lora_path": "a"}), ("unload", {"lora_name": "c"})):
            reply = made.post(f"/v1/{path}_lora_adapter", body)
            assert (reply.status, reply.error["code"]) == (404, "adapters_fixed")
        assert names(made) == [MODEL]


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        ({"adapter": "a"}, "NAME=FOLDER"),
        ({"adapter": ["x=nowhere"]}, "no folder"),
        ({"adapter": ["a={}/a", "a={}/b"]}, "same name"),
        ({"adapter": ["spark={}/a"]}, "'spark'"),
        ({"adapter": ["a={}/a", "b={}/b"], "max_adapters": 1}, "--max-adapters"),
        ({"adapter_folder": "{}/nowhere"}, "no folder"),
        ({"adapter": ["a={}/broken"]}, "adapter_config.json"),
    ],
)
def test_what_is_wrong_at_the_start_is_one_error(folder: Path, options: dict[str, Any], needle: str) -> None:
    named = json.loads(json.dumps(options).replace("{}", str(folder)))
    with pytest.raises(ConfigError, match=needle):
        build_server("spark", {"kv_memory": "20MB", **named})


def used(live: Live) -> tuple[str, str, str]:
    """The metrics' figures (places, waiting, running)."""
    text = live.get("/metrics").body.decode()
    (line,) = [each for each in text.splitlines() if each.startswith("vllm:lora_requests_info{")]
    found = dict(re.findall(r'(\w+)="([^"]*)"', line))
    assert set(found) == {"max_lora", "waiting_lora_adapters", "running_lora_adapters"}
    assert BEGAN_S <= float(line.rpartition(" ")[2]) <= time.time()
    return found["max_lora"], found["waiting_lora_adapters"], found["running_lora_adapters"]


def test_the_metrics_name_the_adapters_of_running_and_waiting_requests(folder: Path) -> None:
    adapters = {"a": folder / "a", "b": folder / "b"}
    options = {"kv_memory": "20MB", "threads": 1, "adapter": adapters, "max_adapters": 3, "max_sequences": 1}
    with build_server("spark", options) as built, serving(built.parts) as made:
        assert used(made) == ("3", "", "")
        seen = set()
        with slow_steps(0.01), ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(made.complete, model=name, max_tokens=60, ignore_eos=True) for name in ("a", "b")]
            while not all(each.done() for each in asked):
                seen.add(used(made)[1:])
        assert {("b", "a"), ("a", "b")} & seen and ("a,b" not in {running for _, running in seen})
        wait_until(lambda: used(made) == ("3", "", ""), "the requests have ended")
