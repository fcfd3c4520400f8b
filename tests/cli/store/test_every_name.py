"""One model, and every name that a person may give it: each verb finds it, or its error tells what to type."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.cli import in_process
from tests.weights import hub_models
from tests.weights.fake_hub import Repo, serve
from tests.weights.store.test_cached import COMMIT, OTHER, put
from twostroke.cli.shared import server_records
from twostroke.cli.shared.server_records import ServerRecord, began_of
from twostroke.cli.store import local_servers
from twostroke.cli.store.facts import found_here
from twostroke.cli.store.run import _bring
from twostroke.types.errors import ModelNotFound

REPO = "acme/Tiny-GGUF"
FILE = "Tiny-Q4_K_M.gguf"
SPLIT = "big/Tiny-Q8_0-00001-of-00002.gguf"
FILES = {FILE: 100, SPLIT: 200, SPLIT.replace("00001", "00002", 1): 201, "README.md": 1}
FOUR_BITS = [
    f"{REPO}:Q4_K_M",
    f"{REPO}:q4_k_m",
    f"{REPO}:{FILE}",
    f"{REPO}:Tiny-Q4_K_M",
    f"{REPO}:tiny-q4_k_m.gguf",
    f"{REPO.lower()}:Q4_K_M",
    f"{REPO}:Q4_K_M@main",
    f"{REPO}:Q4_K_M@{COMMIT}",
    f"{REPO}:Q4_K_M@{COMMIT[:8]}",
    f"hf.co/{REPO}:Q4_K_M",
    f"https://huggingface.co/{REPO}:Q4_K_M",
    f"https://huggingface.co/{REPO}/blob/main/{FILE}",
    "mine",
    "MINE:latest",
]
EIGHT_BITS = [f"{REPO}:Q8_0", f"{REPO}:{SPLIT}", f"{REPO}:Tiny-Q8_0", f"{REPO}:Tiny-Q8_0-00001-of-00002.gguf"]
OPEN = [REPO, REPO.upper(), f"hf.co/{REPO}", f"{REPO}:latest"]
"""Names that leave the file open."""
Verb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs a verb with a hub's cache and aliases of its own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "hub", REPO, FILES)
    assert in_process.run("alias", "mine", f"{REPO}:Q4_K_M").returncode == 0
    return in_process.run


@pytest.mark.parametrize("name", [*FOUR_BITS, *EIGHT_BITS, *OPEN])
def test_a_model_that_is_here_is_found_and_removed_by_each_name(name: str, verb: Verb) -> None:
    expected = SPLIT if name in EIGHT_BITS else FILE
    assert str(found_here(name).path).endswith(expected)
    assert _bring(name, None).endswith(FILE if name in OPEN else name), "the hub must not choose another file"
    dry = json.loads(verb("rm", name, "--dry-run", "--json").stdout)
    assert dry["freed_bytes"] == (502 if name in OPEN else 401 if name in EIGHT_BITS else 100)


@pytest.mark.parametrize("served", [*FOUR_BITS, *OPEN])
def test_a_server_is_found_by_each_name_of_its_model(served: str, verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, names in ((served, ("any",)), ("", ("any", served))):  # one model, or one of several
        record = ServerRecord(os.getpid(), began_of(os.getpid()), "http://127.0.0.1:1", model, names)
        monkeypatch.setattr(server_records, "local_servers", lambda record=record: [record])
        for name in (*FOUR_BITS, *OPEN):
            assert local_servers.having([record], name) == [record], name
            assert local_servers.name_there(record, name) == names[-1]
            refused = verb("rm", name, "--yes")
            assert refused.returncode == 2 and "in use" in refused.stderr, name
        assert local_servers.having([record], EIGHT_BITS[0]) == []


@pytest.mark.parametrize("name", ["Tiny-Q4_K_M.gguf", "tiny-q4_k_m", "Tiny-GGUF:Q4_K_M", "tiny-gguf:q4_k_m"])
def test_a_name_without_its_publisher_is_answered_with_the_whole_name(name: str, verb: Verb) -> None:
    for words in (("show", name), ("run", name, "Hello"), ("rm", name, "--yes"), ("generate", "--model", name, "Hi")):
        done = verb(*words)
        assert done.returncode == 3 and f"Did you mean {REPO}:Q4_K_M" in done.stderr, (words, done.stderr)


def test_a_quantization_that_is_not_here_is_answered_with_those_that_are(verb: Verb) -> None:
    for words in (("show", f"{REPO}:Q5_K_M"), ("rm", f"{REPO}:Q5_K_M", "--yes")):
        done = verb(*words)
        assert done.returncode == 3 and "Q4_K_M" in done.stderr and "Traceback" not in done.stderr, words


def test_the_bits_of_a_measured_division_are_found_by_the_plain_name(verb: Verb, tmp_path: Path) -> None:
    put(tmp_path / "hub", "acme/Ud-GGUF", {"Ud-UD-Q4_K_XL.gguf": 70})
    for name in ("acme/Ud-GGUF:Q4_K_M", "acme/Ud-GGUF:UD-Q4_K_XL", "acme/Ud-GGUF"):
        assert found_here(name).path.name == "Ud-UD-Q4_K_XL.gguf"
        assert json.loads(verb("rm", name, "--dry-run", "--json").stdout)["freed_bytes"] == 70


def test_a_model_of_an_older_commit_or_of_no_branch_is_found(verb: Verb, tmp_path: Path) -> None:
    """The repository had an update after the first file came; another one was downloaded at a commit."""
    put(tmp_path / "hub", REPO, {"Tiny-Q2_K.gguf": 7}, commit=OTHER)
    assert found_here(f"{REPO}:Q2_K").revision == OTHER and found_here(f"{REPO}:Q4_K_M").revision == COMMIT
    assert str(found_here(REPO).path).endswith("Tiny-Q2_K.gguf"), "main comes first"
    with pytest.raises(ModelNotFound):
        found_here(f"{REPO}:Q4_K_M@{OTHER}")
    both = verb("rm", f"{REPO}@{OTHER}", "--yes")
    assert both.returncode == 2 and f"twostroke rm {REPO}" in both.stderr
    put(tmp_path / "hub", "acme/pinned", {"p-Q8_0.gguf": 9})
    (tmp_path / "hub" / "models--acme--pinned" / "refs" / "main").unlink()
    assert found_here("acme/pinned:Q8_0").revision == COMMIT


def test_rm_touches_no_files_of_the_user(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"x")
    for name in ("own.gguf", str(tmp_path / "own.gguf"), str(tmp_path), "spark"):
        refused = verb("rm", name, "--yes")
        assert refused.returncode == 2 and "Traceback" not in refused.stderr, (name, refused.stderr)
    assert (tmp_path / "own.gguf").exists()


def test_run_takes_the_file_that_is_here_where_the_hub_would_choose_another(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pull repo:F16` and then `run repo`: the usual choice of the hub was downloaded unasked."""
    whole = {"Spark-Q8_0.gguf": hub_models.spark_gguf(), "Spark-Q4_K_M.gguf": b"never sent"}
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with serve({"acme/Spark-9B-GGUF": Repo({COMMIT: whole}, {"main": COMMIT})}) as hub:
        from huggingface_hub import hf_api

        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(hf_api.constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        assert verb("pull", "acme/Spark-9B-GGUF:Q8_0", "--no-pack").returncode == 0
        answered = verb("run", "acme/Spark-9B-GGUF", "Hello", "--max-tokens", "2", "--json")
        assert answered.returncode == 0, answered.stderr
        assert not [path for command, path in hub.requests if command == "GET" and path.endswith("Q4_K_M.gguf")]
