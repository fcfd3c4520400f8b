"""What programs with Ollama's API send, and the fields that they read from the answers. Each fails without a field."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

import msgspec

from tests.serve.apis.tools.test_tools import CALL, CITY, serve
from tests.serve.fakes import MODEL
from tests.serve.harness import Live

USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}}]


class Details(msgspec.Struct):
    """Details as Zed reads them, where nothing is optional."""

    format: str
    family: str
    parameter_size: str
    quantization_level: str


class Listed(msgspec.Struct):
    """A model of /api/tags, as Zed reads it."""

    name: str
    modified_at: str
    size: int
    digest: str
    details: Details


class Tags(msgspec.Struct):
    """The answer of /api/tags."""

    models: list[Listed]


class Said(msgspec.Struct):
    """The message of a line, as Zed reads it: content is a text and never null."""

    role: Literal["assistant"]
    content: str
    tool_calls: list[Any] | None = None


class Line(msgspec.Struct):
    """A line of a stream, as Zed reads it."""

    created_at: str
    message: Said
    done: bool
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None


def test_zed(live: Live) -> None:
    tags = msgspec.json.decode(live.get("/api/tags").body, type=Tags)
    shown = live.post("/api/show", {"model": tags.models[0].name}).json
    assert "completion" in shown["capabilities"]
    asked = {"model": tags.models[0].name, "messages": USER, "stream": True, "keep_alive": "-1", "options": {}}
    lines = [msgspec.json.decode(line, type=Line) for line in live.post("/api/chat", asked).body.splitlines()]
    assert "".join(line.message.content for line in lines) == "hello world" and lines[-1].eval_count == 12


def test_open_webui(live: Live) -> None:
    version = live.get("/api/version").json["version"]
    assert tuple(int(part) for part in version.split(".")) > (0, 1)
    for model in live.get("/api/ps").json["models"]:
        assert datetime.fromisoformat(model["expires_at"]) and model["model"] == MODEL + ":latest"
    asked = {"model": MODEL + ":latest", "messages": USER, "options": {}, "stream": True}
    assert live.post("/api/chat", asked).status == 200
    unload = {"model": MODEL + ":latest", "prompt": "", "keep_alive": 0}
    assert live.post("/api/generate", unload).status == 200
    refused = live.call("DELETE", "/api/delete", {"model": MODEL})
    assert refused.status == 501 and isinstance(refused.json["error"], str)


def test_home_assistant() -> None:
    with serve(CALL) as live:
        assert live.post("/api/pull", {"model": MODEL, "stream": False}).json == {"status": "success"}
        asked = {
            "model": MODEL, "messages": [{"role": "system", "content": "A home."}, *USER], "tools": TOOLS,
            "stream": True, "keep_alive": "-1s", "options": {"num_ctx": 1000}, "format": "", "think": False,
        }  # fmt: skip
        reply = live.post("/api/chat", asked)
        lines = [json.loads(line) for line in reply.body.splitlines()]
        calls = [call for line in lines for call in line["message"].get("tool_calls") or []]
        assert calls[0]["function"]["arguments"] == {"city": "Ulm"} and lines[-1]["done_reason"] == "stop"


def test_continue(live: Live) -> None:
    shown = live.post("/api/show", {"name": MODEL}).json
    assert isinstance(shown["parameters"], str) and isinstance(shown["template"], str)
    raw = {"model": MODEL, "prompt": "a", "raw": True, "options": {"num_predict": 3}, "keep_alive": 1800}
    pieces = [json.loads(line) for line in live.post("/api/generate", raw).body.splitlines()]
    assert "".join(piece["response"] for piece in pieces) == "hel"
    tools = live.post("/api/chat", {"model": MODEL, "messages": USER, "tools": TOOLS, "stream": False})
    assert tools.json["message"]["content"] == "hello world"


def test_vs_code_copilot(live: Live) -> None:
    assert tuple(int(part) for part in live.get("/api/version").json["version"].split(".")) >= (0, 6, 4)
    for model in live.get("/api/tags").json["models"]:
        info = live.post("/api/show", {"model": model["model"]}).json
        architecture = info["model_info"]["general.architecture"]
        assert info["model_info"][f"{architecture}.context_length"] > 0 and info["model_info"]["general.basename"]
        assert "tools" in info["capabilities"]
    assert live.chat(model=MODEL).status == 200


def test_n8n_sends_options_of_the_load(live: Live) -> None:
    options = {
        "num_ctx": 1000, "low_vram": False, "penalize_newline": True, "use_mmap": True, "num_thread": 0, "num_gpu": -1,
        "temperature": 0.7, "top_k": -1, "repeat_penalty": 1, "presence_penalty": 0, "num_predict": -1,
    }  # fmt: skip
    reply = live.post("/api/chat", {"model": MODEL, "messages": USER, "options": options, "keep_alive": "5m"})
    assert reply.status == 200 and "options.low_vram" in reply.headers["x-twostroke-ignored-fields"]
