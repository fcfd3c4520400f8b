"""Several models in one server, over real sockets: chat, vectors and scores, each with the bits that it has alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import CliRunner

from tests.adapters.random_lora import write_random_lora
from tests.cluster.several_models.several import HELLO, Several, several
from tests.retrieval.folders import write_embedding, write_reranker
from tests.serve.harness import serving, wait_until
from twostroke.assets import spark_path
from twostroke.cli.server.serve import command
from twostroke.runner.folder import read_folder
from twostroke.server.build import build_server

pytestmark = pytest.mark.slow

TEXTS = ["What is prefill?", "Decode writes the answer."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_embedding(made / "vectors")
    write_reranker(made / "scores")
    shutil.copytree(spark_path(), made / "second")
    write_random_lora(made / "lora", read_folder(spark_path()), ("q_proj", "down_proj"), seed=1, size=0.3)
    (made / "models.toml").write_text(
        f"""
[all]
threads = 1
[models.chat]
model = "spark"
at_start = true
aliases = ["gpt-4o-mini"]
adapter = ["fr={made / "lora"}"]
[models.second]
model = "{made / "second"}"
keep_alive = "5m"
defaults = {{ temperature = 0.0 }}
[models.vectors]
model = "{made / "vectors"}"
weights = "f32"
[models.scores]
model = "{made / "scores"}"
task = "rerank"
context = 1024
weights = "f32"
"""
    )
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Several]:
    with several(folder / "log", "--models", str(folder / "models.toml")) as made:
        yield made


def alone(model: str, path: str, body: dict[str, Any], **options: Any) -> Any:
    """Sends the same request to a server with this model alone."""
    with build_server(model, {"threads": 1, "kv_memory": "64MB", **options}) as built:
        with serving(built.parts) as live:
            reply = live.post(path, {**body, "model": "it" if "adapter" in options else live.model})
            assert reply.status == 200, reply.body
            return reply.json


def test_a_chat_a_vector_and_a_score_have_the_bits_that_they_have_alone(server: Several, folder: Path) -> None:
    chat = {"messages": HELLO, "max_tokens": 16, "seed": 5, "logprobs": True}
    found = server.http.post("/v1/chat/completions", json={"model": "chat", **chat}).json()["choices"]
    assert found == alone("spark", "/v1/chat/completions", chat)["choices"]
    adapted = server.http.post("/v1/chat/completions", json={"model": "fr", **chat}).json()["choices"]
    assert adapted != found
    assert adapted == alone("spark", "/v1/chat/completions", chat, adapter=[f"it={folder / 'lora'}"])["choices"]
    vectors = server.http.post("/v1/embeddings", json={"model": "vectors", "input": TEXTS}).json()["data"]
    assert vectors == alone(str(folder / "vectors"), "/v1/embeddings", {"input": TEXTS}, weights="f32")["data"]
    pairs = {"query": "prefill", "documents": TEXTS}
    options = {"weights": "f32", "task": "rerank", "context": 1024}
    scores = server.http.post("/v1/rerank", json={"model": "scores", **pairs}).json()["results"]
    assert scores == alone(str(folder / "scores"), "/v1/rerank", pairs, **options)["results"]


def test_the_lists_tell_all_models_and_the_real_client_reads_them(server: Several) -> None:
    assert [each.id for each in server.client.models.list()] == [
        *("chat", "gpt-4o-mini", "fr"),
        *("second", "vectors", "scores"),
    ]
    assert server.client.models.retrieve("gpt-4o-mini").id == "gpt-4o-mini"
    tags = server.http.get("/api/tags").json()["models"]
    assert [each["name"] for each in tags][:2] == ["chat:latest", "gpt-4o-mini:latest"]
    server.chat("second")
    states = server.states()
    assert states["chat"] == states["second"] == "loaded"
    assert {each["name"] for each in server.http.get("/api/ps").json()["models"]} >= {"chat:latest", "second:latest"}
    metrics = server.http.get("/metrics").text
    assert 'twostroke_model_state{model_name="chat",state="loaded"} 1.0' in metrics
    assert 'twostroke_generation_tokens_total{model_name="second"}' in metrics
    assert metrics.count("# TYPE twostroke_generation_tokens_total ") == 1


@pytest.mark.parametrize("name", ["chat", "CHAT:latest", "gpt-4o-mini", "spark"])
def test_a_model_has_many_names(server: Several, name: str) -> None:
    assert server.chat(name) == server.chat("second")  # both names have the same weights
    body = {"model": name, "messages": HELLO, "stream": False, "options": {"num_predict": 3}}
    assert server.http.post("/api/chat", json=body).json()["model"] == name


def test_an_unknown_name_is_refused_with_the_names_that_there_are(server: Several) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        server.chat("gpt-5")
    assert caught.value.code == "model_not_found"
    assert all(name in str(caught.value) for name in ("chat", "second", "vectors", "scores"))
    reply = server.http.post("/api/chat", json={"model": "gpt-5", "messages": HELLO})
    assert (reply.status_code, reply.json()) == (404, {"error": 'model "gpt-5" not found, try pulling it first'})


def test_a_request_that_names_no_model_goes_to_the_first_of_its_task(server: Several) -> None:
    answer = server.http.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 1}).json()
    assert answer["model"] == "chat"
    server.client.embeddings.create(model="vectors", input="a")
    assert server.http.post("/v1/embeddings", json={"input": "a"}).json()["model"] == "vectors"


def test_a_wrong_request_loads_nothing(server: Several) -> None:
    server.http.post("/models/unload", json={"model": "second"})
    server.wait_for("second", "unloaded")
    with pytest.raises(openai.BadRequestError):
        server.chat("second", temperature=9)
    assert server.states()["second"] == "unloaded"


def test_a_model_that_left_is_loaded_again_for_the_next_request(server: Several) -> None:
    before = server.chat("second")
    server.http.post("/models/unload", json={"model": "second"})
    server.wait_for("second", "unloaded")
    assert server.chat("second") == before
    with server.client.chat.completions.create(model="second", messages=HELLO, max_tokens=3, stream=True) as stream:
        assert [each.choices[0].finish_reason for each in stream][-1] == "length"


def test_events_tell_what_becomes_of_a_model(server: Several) -> None:
    server.chat("second")
    with server.http.stream("GET", "/models/sse") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":"), "from here on nothing is missed"
        server.http.post("/models/unload", json={"model": "second"})
        found = list[tuple[str, str]]()
        for line in lines:
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert event["model"] == "second"
                found.append((event["event"], event["data"]["status"]))
                if event["data"]["status"] == "unloaded":
                    server.http.post("/models/load", json={"model": "second"})
                if event["data"]["status"] == "loaded":
                    break
    assert found[0] == ("status_change", "unloaded")
    assert ("model_status", "loading") in found
    assert found[-1] == ("status_change", "loaded")


def test_keep_alive_of_ollama_reaches_the_model(server: Several) -> None:
    def generate(**fields: Any) -> Any:
        reply = server.http.post("/api/generate", json={"model": "second", "stream": False, **fields})
        assert "keep_alive" not in reply.headers.get("x-twostroke-ignored-fields", "")
        return reply.json()

    assert generate(prompt="a", keep_alive="10m", options={"num_predict": 1})["done"]
    loaded = {each["name"]: each["expires_at"] for each in server.http.get("/api/ps").json()["models"]}
    assert loaded["second:latest"] < loaded["chat:latest"], "the one of the start stays"
    assert generate(keep_alive=0)["done_reason"] == "unload"
    server.wait_for("second", "unloaded")
    assert generate()["done_reason"] == "load"
    assert server.states()["second"] == "loaded"
    generate(prompt="a", keep_alive=-1, options={"num_predict": 1})

    def both_stay() -> bool:
        until = [each["expires_at"] for each in server.http.get("/api/ps").json()["models"]]
        return sum(each.startswith("2318") for each in until) >= 2

    wait_until(both_stay, "both stay")


def test_a_killed_process_loses_no_answer(server: Several) -> None:
    whole = server.chat("second", max_tokens=200)
    pieces, killed = "", False
    with server.client.chat.completions.create(
        model="second", messages=HELLO, max_tokens=200, temperature=0, stream=True
    ) as stream:
        for chunk in stream:
            pieces += chunk.choices[0].delta.content or ""
            if not killed:
                server.kill("second")
                killed = True
    assert pieces == whole
    assert server.states()["chat"] == "loaded"


@pytest.mark.daily
def test_a_model_whose_files_are_gone_is_one_error_and_the_others_go_on(server: Several, folder: Path) -> None:
    server.http.post("/models/unload", json={"model": "second"})
    server.wait_for("second", "unloaded")
    os.rename(folder / "second", folder / "away")
    try:
        with pytest.raises(openai.InternalServerError) as caught:
            server.chat("second")
        assert caught.value.status_code == 503 and caught.value.code == "model_failed"
        assert "second" in str(caught.value)
        assert server.states()["second"] == "failed"
        assert server.chat("chat")
        reason = next(each for each in server.http.get("/v1/models").json()["data"] if each["id"] == "second")["status"]
        assert reason["failed"] and reason["reason"]
    finally:
        os.rename(folder / "away", folder / "second")
    assert server.http.post("/models/load", json={"model": "second"}).json() == {"success": True}
    assert server.chat("second") == server.chat("chat")


def test_nothing_is_left_when_the_server_is_killed(folder: Path) -> None:
    with several(folder / "killed.log", "--models", str(folder / "models.toml")) as made:
        pid = made.process_of("chat")
        assert pid is not None
        made.process.kill()
        made.process.wait()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its model ends with it")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("spark", "spark"), "Two models have the name"),
        (("spark", "spark-draft", "--served-name", "x"), "about one model"),
        (("spark", "spark-draft", "--supervise"), "for a server of one model"),
        (("spark", "--keep-alive", "5m"), "for a server of several models"),
        (("--models", "nowhere.toml"), "cannot be read"),
        (("nowhere-a", "nowhere-b"), "nowhere"),
    ],
)
def test_what_cannot_be_served_together(words: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(command, [*words, "--port", "0"])
    assert found.exit_code in (2, 3)
    assert said in found.output
    assert "Traceback" not in found.output


@pytest.mark.daily
def test_two_of_the_command_line_with_room_for_one(folder: Path) -> None:
    """The second model is loaded when a request names it, and the first one is unloaded."""
    words = ("spark", str(folder / "second"), "--max-loaded", "1")
    with several(folder / "one.log", *words) as made:
        assert made.states() == {"spark": "loaded", "second": "unloaded"}
        assert made.chat("second") == made.chat("spark")
        assert made.states() == {"spark": "loaded", "second": "unloaded"}
