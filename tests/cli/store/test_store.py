"""`list`, `rm` and `ps`: their output and their exit codes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.cli import in_process
from tests.serve.fakes import MODEL, fake_parts
from tests.serve.harness import Live, serving
from tests.weights.store.test_cached import GGUFS, put
from twostroke.cli.shared import server_records
from twostroke.cli.shared.server_records import ServerRecord, began_of


def run(*words: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:  # the hub's package reads the variable when it is imported
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


def test_list_with_a_text_shows_those_whose_name_contains_it(tmp_path: Path) -> None:
    put(tmp_path, "acme/t", GGUFS)
    found = json.loads(run("list", "q8", "--json", cache=tmp_path).stdout)["models"]
    assert [model["name"] for model in found] == ["acme/t:Q8_0"]
    assert "0 models" in run("list", "none", cache=tmp_path).stdout


def test_several_models_are_removed_together_or_none_is(tmp_path: Path) -> None:
    put(tmp_path, "acme/t", GGUFS)
    put(tmp_path, "acme/u", {"u-Q8_0.gguf": 33})
    wrong = run("rm", "acme/u:Q8_0", "acme/none", "--yes", cache=tmp_path)
    assert wrong.returncode == 3 and "acme/u:Q8_0" in run("list", cache=tmp_path).stdout
    asked = run("rm", "acme/u:Q8_0", "acme/t:Q8_0", cache=tmp_path)
    assert asked.returncode == 2 and "acme/u:Q8_0" in asked.stderr and "acme/t:Q8_0" in asked.stderr
    words = ("rm", "acme/u:Q8_0", "acme/t:Q8_0", "acme/t:Q8_0", "--yes", "--json")
    gone = json.loads(run(*words, cache=tmp_path).stdout)
    assert gone["freed_bytes"] == 33 + 401 and [each["removed"] for each in gone["models"]] == [True] * 3
    assert run("rm", cache=tmp_path).returncode == 2


def test_a_model_that_a_server_has_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "acme/t", GGUFS)
    for model, names in (("acme/t:q8_0", ("t",)), ("", ("t", "acme/t:Q8_0"))):  # first one model, then one of several
        record = ServerRecord(os.getpid(), began_of(os.getpid()), "http://127.0.0.1:1", model, names)
        monkeypatch.setattr(server_records, "local_servers", lambda record=record: [record])
        for name in ("acme/t:Q8_0", "acme/t"):
            refused = run("rm", name, "--yes", cache=tmp_path)
            assert refused.returncode == 2 and "in use" in refused.stderr and "twostroke stop" in refused.stderr
            assert run("rm", name, "--dry-run", cache=tmp_path).returncode == 0
    assert run("rm", "acme/t:Q4_0", "--yes", cache=tmp_path).returncode == 0


def test_a_cache_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "acme/t", GGUFS)
    real = Path.iterdir

    def closed(path: Path) -> Iterator[Path]:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(Path, "iterdir", closed)
    for words in (("list",), ("list", "--json"), ("rm", "acme/t:Q8_0", "--yes")):
        refused = run(*words, cache=tmp_path)
        assert refused.returncode == 2 and "cannot be read" in refused.stderr and "fix:" in refused.stderr, words
    assert run("list", cache=tmp_path / "none").returncode == 0


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
