"""Models that a running server fetches. It checks first whether they fit, fetches one at a time, and reports each end
of a download."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ollama
import pytest
from click.testing import CliRunner
from huggingface_hub import constants
from msgspec.structs import replace

from tests.cluster.several_models.several import Several, several
from tests.serve.harness import wait_until
from tests.weights import hub_models
from tests.weights.fake_hub import FakeHub, serve
from twostroke.cli.main import main
from twostroke.server.errors import HttpProblem
from twostroke.server.several.news import pull_changes
from twostroke.server.several.pulls import Pull, Pulls, PullTools, checked_name
from twostroke.types.errors import ConfigError

NEW = "acme/spark-GGUF"


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with serve(hub_models.repos()) as running:
        yield running


def places(hub: FakeHub, folder: Path) -> dict[str, str]:
    """The environment of a server that uses this hub."""
    names = {"HF_HUB_CACHE": folder / "hub", "XDG_CACHE_HOME": folder / "cache", "XDG_CONFIG_HOME": folder / "config"}
    return {**{name: str(place) for name, place in names.items()}, "HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1"}


@pytest.fixture
def server(hub: FakeHub, tmp_path: Path) -> Iterator[Several]:
    with several(tmp_path / "log", "spark", "--pulls", **places(hub, tmp_path)) as made:
        yield made


def last(server: Several) -> Any:
    return server.http.get("/models/pull").json()["pull"]


def ended(server: Several) -> Any:
    wait_until(lambda: last(server)["state"] != "running", "the end of the download")
    return last(server)


@pytest.mark.slow
def test_the_fit_is_told_first_and_the_model_answers_afterwards(server: Several, hub: FakeHub) -> None:
    fit = server.http.get("/models/fit", params={"model": NEW}).json()
    assert fit["fit"]["fits"] is True and fit["bytes"] == fit["missing_bytes"] > 0 and fit["refusal"] is None
    assert fit["license"] == "apache-2.0" and fit["model"] == NEW
    assert not [entry for entry in hub.ranges if entry.endswith("-")], "a byte of the weights"
    assert last(server) is None
    assert server.http.post("/models", json={"model": NEW}).json() == {"success": True}
    found = ended(server)
    assert found["state"] == "finished", found
    names = [each["id"] for each in server.http.get("/v1/models").json()["data"]]
    assert names == ["spark", "spark-GGUF"]
    assert server.chat("spark-GGUF") and server.chat(NEW)
    assert server.http.get("/models/fit", params={"model": NEW}).json()["missing_bytes"] == 0
    # A second removal is a success too, and the list stays as it is.
    server.http.post("/models", json={"model": NEW})
    assert ended(server)["state"] == "finished"
    assert [each["id"] for each in server.http.get("/v1/models").json()["data"]] == names


@pytest.mark.slow
def test_run_and_stop_find_a_model_that_came_while_the_server_runs(
    server: Several, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def verb(*words: str) -> Any:
        done = CliRunner().invoke(main, [*words, "--json"], env=places(hub, tmp_path))
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    (tmp_path / "config" / "twostroke").mkdir(parents=True)
    (tmp_path / "config" / "twostroke" / "aliases.toml").write_text(f'[aliases]\nmine = "{NEW}"\n')
    server.http.post("/models", json={"model": NEW})
    assert ended(server)["state"] == "finished"
    wait_until(lambda: len(verb("ps")["servers"][0]["names"]) > 1, "the new names in the record")
    answers = [verb("run", name, "Hello", "--max-tokens", "4") for name in ("spark-GGUF", NEW, "mine")]
    assert [each["server"] for each in answers] == [server.url] * 3
    assert len({each["text"] for each in answers}) == 1
    stopped = verb("stop", NEW)
    assert (stopped["stopped"], stopped["unloaded"][0]["model"]) == ([], "spark-GGUF")
    assert server.states() == {"spark": "loaded", "spark-GGUF": "unloaded"}


@pytest.mark.slow
def test_what_cannot_be_fetched_is_said_and_fetches_nothing(server: Several, hub: FakeHub) -> None:
    huge = server.http.get("/models/fit", params={"model": "acme/huge"}).json()
    assert huge["fit"]["fits"] is False and "does not fit" in huge["refusal"]
    strange = server.http.get("/models/fit", params={"model": "acme/strange"}).json()
    assert "NoSuchForCausalLM" in strange["refusal"]
    before = list(hub.requests)
    server.http.post("/models", json={"model": "acme/huge"})
    found = ended(server)
    assert found["state"] == "failed" and "does not fit" in found["why"]
    assert not [path for command, path in hub.requests[len(before):] if command == "GET" and path.endswith("tensors")]
    for name in ("/etc/passwd", "..", "-x", "a/b/c", "", "x" * 201, "."):
        assert server.http.get("/models/fit", params={"model": name}).status_code == 400
        assert server.http.post("/models", json={"model": name}).status_code == 400
    missing = server.http.get("/models/fit", params={"model": "acme/none"})
    assert missing.status_code == 404 and missing.json()["error"]["message"]
    assert server.http.get("/models/fit", params={"model": "spark"}).status_code == 404


@pytest.mark.slow
def test_the_real_ollama_client_pulls(server: Several) -> None:
    client = ollama.Client(host=server.url)
    told = [each.model_dump(exclude_none=True) for each in client.pull(f"hf.co/{NEW}", stream=True)]
    assert told[0] == {"status": "pulling manifest"} and told[-1] == {"status": "success"}
    progress = [each for each in told if "total" in each]
    assert progress and all(0 <= each["completed"] <= each["total"] for each in progress)
    assert client.pull(NEW).status == "success"  # it is here now
    assert "spark-GGUF:latest" in [each.model for each in client.list().models]
    with pytest.raises(ollama.ResponseError, match="does not fit"):
        client.pull("acme/huge")
    with pytest.raises(ollama.ResponseError, match="does not fit"):
        list(client.pull("acme/huge", stream=True))
    with pytest.raises(ollama.ResponseError, match="must be"):
        client.pull("../x")


@pytest.mark.slow
def test_without_the_option_nothing_is_fetched(tmp_path: Path) -> None:
    with several(tmp_path / "log", "spark", "--max-loaded", "2", "--models-dir", str(_folder(tmp_path))) as server:
        for reply in (
            server.http.get("/models/fit", params={"model": NEW}),
            server.http.post("/models", json={"model": NEW}),
            server.http.get("/models/pull"),
            server.http.delete("/models/pull"),
        ):
            assert reply.status_code == 403 and "--pulls" in reply.json()["error"]["message"]
        assert server.http.get("/v1/models").json()["pulls"] is False


def _folder(place: Path) -> Path:
    made = place / "models"
    made.mkdir()
    (made / "Spark-Q8_0.gguf").write_bytes(hub_models.spark_gguf())
    return made


def stub(text: str) -> PullTools:
    """A program that takes the place of `twostroke pull`."""
    added: list[tuple[str, str]] = []

    def command(words: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-c", text, *words]

    tools = PullTools(command, {}, lambda name, path: added.append((name, path)), lambda: None)
    ADDED[id(tools)] = added
    return tools


ADDED: dict[int, list[tuple[str, str]]] = {}
SLOW = """
import json, sys, time
print("llama3.2:1b = a/b", file=sys.stderr)
print(json.dumps({"stage": "download", "done": 5, "total": 10, "what": "x"}), file=sys.stderr, flush=True)
time.sleep(600)
"""


async def until(true: Callable[[], Any]) -> None:
    for _ in range(6000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")


def test_one_at_a_time_and_a_download_can_be_stopped() -> None:
    async def main() -> None:
        tools = stub(SLOW)
        pulls = Pulls(tools)
        made = await pulls.begin("llama3.2:1b", anyway=False)
        await until(lambda: made.total)
        assert (made.state, made.stage, made.done, made.total) == ("running", "download", 5, 10)
        with pytest.raises(HttpProblem) as raised:
            await pulls.begin("other", anyway=False)
        assert raised.value.problem.status == 409
        assert pulls.stop() and not pulls.stop()
        await pulls.close()
        assert made.state == "stopped" and ADDED[id(tools)] == []

    asyncio.run(main())


def test_a_stop_while_the_download_is_started_counts() -> None:
    async def main() -> None:
        pulls = Pulls(stub(SLOW))
        begun = asyncio.create_task(pulls.begin("a/b", anyway=False))
        await until(lambda: pulls.last)
        assert pulls.stop() and not pulls.stop()
        made = await begun
        await pulls.close()  # close waits for the process
        assert made.state == "stopped" and made.total == 0

    asyncio.run(main())


def test_a_model_that_has_no_place_here_is_a_failed_download() -> None:
    def added(_name: str, _path: str) -> None:
        raise ConfigError("It is no model.", why="x", fix="y")

    async def main() -> None:
        tools = replace(stub("""print('{"path": "/x"}')"""), added=added)
        made = await Pulls(tools).begin("a/b", anyway=True)
        await until(lambda: made.state != "running")
        assert made.state == "failed" and "It is no model." in made.why

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "state", "why"),
    [
        ("import sys; sys.exit('error: No space left on device.')", "failed", "No space left"),
        ("import os; os._exit(5)", "failed", "code 5"),
        ("print('no json')", "failed", "cannot be read"),
        ("print('{}')", "failed", "cannot be read"),
        ("""print('{"path": "/x"}')""", "finished", ""),
        ("import sys; sys.stderr.write('x' * (3 << 20))", "failed", "limit"),
        ("""import sys; sys.stderr.write('{"stage": 1}\\n' * 3); print('{"path": "/x"}')""", "finished", ""),
    ],
)
def test_whatever_ends_a_download_is_said(text: str, state: str, why: str) -> None:
    async def main() -> None:
        tools = stub(text)
        pulls = Pulls(tools)
        made = await pulls.begin("a/b", anyway=True)
        await until(lambda: made.state != "running")
        assert made.state == state and why in made.why
        assert ADDED[id(tools)] == ([("a/b", "/x")] if state == "finished" else [])
        again = await pulls.begin("a/b", anyway=True)  # the next download can begin
        await until(lambda: again.state != "running")
        await pulls.close()

    asyncio.run(main())


def test_a_command_that_cannot_run_is_a_failed_download() -> None:
    async def main() -> None:
        ends: list[str] = []
        nothing = PullTools(
            lambda words: ["/nowhere/twostroke", *words], {}, lambda name, path: None, lambda: ends.append("end")
        )
        made = await Pulls(nothing).begin("a/b", anyway=False)
        assert made.state == "failed" and made.why and ends == ["end"]

    asyncio.run(main())


def test_its_events_have_the_names_of_llama_cpps_router() -> None:
    begun, half = Pull("a/b"), Pull("a/b", done=5, total=10)
    assert pull_changes(None, None) == pull_changes(half, half) == []
    (first,) = pull_changes(None, begun)
    (progress,) = pull_changes(begun, half)
    assert first["event"] == progress["event"] == "download_progress"
    assert progress == {"model": "a/b", "event": "download_progress",
                        "data": {"progress": {"stage": "download", "done": 5, "total": 10}}}  # fmt: skip
    (done,) = pull_changes(half, Pull("a/b", "finished", "pack", 5, 10))
    (failed,) = pull_changes(half, Pull("a/b", "failed", why="no"))
    assert done["event"] == "download_finished"
    assert failed["event"] == "download_failed" and failed["data"] == {"error": "no"}


@pytest.mark.parametrize("name", ["llama3.2:1b", "a/b", "a/b:Q4_K_M", "Qwen/Qwen3-0.6B-GGUF:q8.gguf", "hf.co/a/b:Q8_0"])
def test_names_of_models_are_taken(name: str) -> None:
    assert checked_name(name) == name.removeprefix("hf.co/")


@pytest.mark.parametrize("name", ["", "/x", "../x", "a/../b", "--endpoint", "a b", "a/b/c", "a\n", "~/x", "./x", "a;b"])
def test_what_could_be_a_path_or_an_option_is_not(name: str) -> None:
    with pytest.raises(HttpProblem):
        checked_name(name)
