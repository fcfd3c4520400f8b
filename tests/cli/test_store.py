"""`list`, `rm` and `ps`: what they print, and their exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.cli import in_process
from tests.serve.fakes import MODEL, fake_parts
from tests.serve.harness import Live, serving
from tests.weights.store.test_cached import GGUFS, put


def run(*words: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:  # the hub's package reads the variable as it is imported
        patch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE if cache is None else str(cache))
        return in_process.run(*words)


def test_list_and_rm(tmp_path: Path) -> None:
    put(tmp_path, "acme/t", GGUFS)
    put(tmp_path, "unsloth/Llama-3.2-1B-Instruct-GGUF", {"Llama-3.2-1B-Instruct-Q4_K_M.gguf": 33})
    found = json.loads(run("list", "--json", cache=tmp_path).stdout)["models"]
    assert [model["name"] for model in found][:2] == ["acme/t:Q4_0", "acme/t:Q8_0"]
    unasked = run("rm", "acme/t:Q8_0", cache=tmp_path)
    assert unasked.returncode == 2 and "--yes" in unasked.stderr
    dry = json.loads(run("rm", "acme/t:Q8_0", "--dry-run", "--json", cache=tmp_path).stdout)
    assert dry["freed_bytes"] == 401 and dry["removed"] is False
    gone = run("rm", "acme/t:q8_0", "--yes", cache=tmp_path)
    assert gone.returncode == 0 and "removed" in gone.stdout
    assert run("rm", "llama3.2:1b", "--yes", cache=tmp_path).returncode == 0
    left = run("list", cache=tmp_path).stdout
    assert "acme/t:Q4_0" in left and "Q8_0" not in left and "Llama" not in left
    near = run("rm", "acme/tt:Q4_0", "--yes", cache=tmp_path)
    assert near.returncode == 3 and "Did you mean acme/t:Q4_0?" in near.stderr


def test_ps() -> None:
    def shown(live: Live) -> None:
        assert f"{MODEL}:latest" in run("ps", "--url", live.url).stdout
        assert json.loads(run("ps", "--url", live.url, "--json").stdout)["models"][0]["name"] == f"{MODEL}:latest"

    with serving(fake_parts()) as live:
        shown(live)
    with serving(fake_parts(api_key="k")) as live:
        assert run("ps", "--url", live.url, "--api-key", "k").returncode == 0
        refused = run("ps", "--url", live.url)
        assert refused.returncode == 2 and "--api-key" in refused.stderr
    gone = run("ps", "--url", "http://127.0.0.1:9")
    assert gone.returncode == 2 and "No server answers" in gone.stderr
