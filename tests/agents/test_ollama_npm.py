"""npm's `ollama` in Node calls each of its methods. Without Node or the package the last lines of the run say so."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.npm import installed
from tests.real.packages import MARK, NotHere
from tests.serve.apis.engines.test_ollama import TOOLS
from tests.serve.apis.tools.test_tools import CALL, serve
from tests.serve.fakes import CONTEXT, MODEL, fake_parts
from tests.serve.harness import serving

HERE = Path(__file__).parent / "ollama"
LIMIT_S = 120
PARTS = ("load_duration", "prompt_eval_duration", "eval_duration")
NOT_DONE = ("copy", "create", "delete", "push")


@pytest.fixture(scope="session")
def node_folder() -> Path:
    try:
        return installed(HERE)
    except NotHere as error:
        pytest.skip(f"{MARK}{error}")


def printed(folder: Path, script: str, *words: str) -> Any:
    """What a script of this folder prints, and nothing on its standard error."""
    command = ["node", script, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_method_of_the_npm_package(node_folder: Path) -> None:
    with serving(fake_parts()) as live:
        seen = printed(node_folder, "calls.mjs", live.url, MODEL)
    assert tuple(int(part) for part in seen["version"]["version"].split(".")) >= (0, 6, 4)
    assert [each["model"] for each in seen["list"]["models"]] == [MODEL + ":latest"]
    assert seen["show"]["capabilities"] == ["completion", "tools"] and seen["show"]["model_info"]
    for name, field in (("chat", "message"), ("generate", "response")):
        whole, parts = seen[name], seen[name + "Stream"]
        said = [each[field]["content"] if field == "message" else each[field] for each in (whole, *parts)]
        assert said[0] == "".join(said[1:]) == "hello world", name
        assert [each["done"] for each in parts] == [*[False] * (len(parts) - 1), True]
        for last in (whole, parts[-1]):
            assert last["eval_count"] == 12 and last["done_reason"] == "stop" and last["prompt_eval_count"] > 0
            assert sum(last[part] for part in PARTS) <= last["total_duration"]
    assert "".join(each["message"]["content"] for each in seen["browser"]) == "hello world"
    assert seen["json"]["done"] and seen["load"]["done_reason"] == "load"
    assert seen["ps"]["models"][0]["context_length"] == CONTEXT
    assert seen["pull"] == seen["pullStream"][-1] == {"status": "success"}
    assert "hello world".startswith(seen["aborted"]) and seen["aborted"]
    assert seen["abortError"] in (None, "AbortError")  # None where all of it had come by then
    assert seen["after"]["message"]["content"] == "hello world"
    refused = seen["refused"]
    unknown = {"status": 404, "error": 'model "nobody" not found, try pulling it first'}
    assert refused["unknown"] == refused["stream"] == unknown
    assert refused["option"]["status"] == 400 and "mirostat" in refused["option"]["error"]
    assert all(refused[name]["status"] == 400 and "embed" in refused[name]["error"] for name in ("embed", "embeddings"))
    assert all(refused[name]["status"] == 501 and refused[name]["error"] for name in NOT_DONE), refused


@pytest.mark.slow
def test_a_tool_call_of_the_npm_package(node_folder: Path) -> None:
    with serve(f"I look.\n{CALL}") as live:
        seen = printed(node_folder, "tools.mjs", live.url, MODEL, json.dumps(TOOLS))
    for calls in seen.values():
        assert [(each["function"]["name"], each["function"]["arguments"]) for each in calls] == [
            ("weather", {"city": "Ulm"})
        ]
