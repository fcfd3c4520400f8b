"""GET /models/sse with the processes of two models and a third one that does not load."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cluster.several_models.several import HELLO, Several, several
from tests.serve.harness import WAIT_S, wait_until
from twostroke.assets import spark_path

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Several]:
    """one, which is loaded at the start; two; and broken, whose weights end too soon."""
    for name in ("two", "broken"):
        shutil.copytree(spark_path(), tmp_path / name)
    (weights,) = (tmp_path / "broken").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    (tmp_path / "models.toml").write_text(
        f"""
[models.one]
model = "spark"
at_start = true
[models.two]
model = "{tmp_path / "two"}"
[models.broken]
model = "{tmp_path / "broken"}"
"""
    )
    with several(tmp_path / "log", "--models", str(tmp_path / "models.toml"), "--kv-memory", "20MB") as made:
        yield made


class Reader:
    """What one client of the events has read so far."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.begun = threading.Event()

    def follow(self, url: str) -> None:
        """Until the server ends the stream."""
        with httpx2.stream("GET", f"{url}/models/sse", timeout=WAIT_S) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                self.begun.set()
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))

    def of(self, model: str) -> list[tuple[str, str]]:
        """The kinds of events of a model, with its state; one for all that tell how far it is loaded."""
        found = [(each["event"], each["data"]["status"]) for each in self.events if each["model"] == model]
        return [each for place, each in enumerate(found) if not place or found[place - 1] != each]


@contextmanager
def reading(server: Several) -> Iterator[Reader]:
    reader = Reader()
    thread = threading.Thread(target=reader.follow, args=(server.url,), daemon=True)
    thread.start()
    assert reader.begun.wait(WAIT_S)
    yield reader
    thread.join(WAIT_S)
    assert not thread.is_alive(), "the events go on after the server"


LOADING = [("model_status", "loading"), ("status_change", "loading")]
LOADED = ("status_change", "loaded")


def without_shares(events: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """How many shares of a load are seen depends on its seconds: a small one has none."""
    return [each for each in events if each != LOADING[1]]


def _kill_while_it_answers(server: Several, model: str) -> None:
    """A process that answers nobody is not started again; one with a stream is."""
    whole, pieces = server.chat(model, max_tokens=200), ""
    asked: Any = {"model": model, "messages": HELLO, "max_tokens": 200, "temperature": 0}
    with server.client.chat.completions.create(**asked, stream=True) as stream:
        for number, chunk in enumerate(stream):
            pieces += chunk.choices[0].delta.content or ""
            if not number:
                server.kill(model)
    assert pieces == whole


def test_two_readers_see_what_becomes_of_three_processes(server: Several) -> None:
    with reading(server) as one, reading(server) as other:
        assert server.http.post("/models/load", json={"model": "two"}).json() == {"success": True}
        refused = server.http.post("/models/load", json={"model": "broken"})
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "model_failed"
        _kill_while_it_answers(server, "one")
        wait_until(lambda: LOADED in one.of("one"), "the next process of the killed one")
        assert server.http.post("/models/unload", json={"model": "two"}).status_code == 200
        wait_until(lambda: ("status_change", "unloaded") in one.of("two"), "the end of two")
        assert server.states() == {"one": "loaded", "two": "unloaded", "broken": "failed"}
        server.process.terminate()
        server.process.wait(WAIT_S)
    assert one.events == other.events
    assert without_shares(one.of("two")) == [LOADING[0], LOADED, ("status_change", "unloaded")]
    assert without_shares(one.of("one")) == [("status_change", "unloaded"), LOADING[0], LOADED]
    assert without_shares(one.of("broken"))[-1] == ("status_change", "failed")
    (why,) = [each["data"]["error"] for each in one.events if each["data"]["status"] == "failed"]
    assert why and "'broken'" in refused.json()["error"]["message"]
    shares = [each["data"]["progress"]["value"] for each in one.events if "progress" in each["data"]]
    assert all(0 < share <= 1 for share in shares)
