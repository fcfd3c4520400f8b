"""`pull`: its report before the first byte of the weights, its refusals, and the files afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants

from tests.weights import hub_models
from tests.weights.fake_hub import FakeHub, serve
from tests.weights.hub_models import COMMIT, NAME
from twostroke.cli.main import main

Pull = Callable[..., Result]


@pytest.fixture(scope="module")
def repos() -> dict[str, Any]:
    return hub_models.repos()


@pytest.fixture
def hub(repos: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve(repos) as running:
        yield running


@pytest.fixture
def pull(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pull:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*words: str, **environment: str) -> Result:
        return CliRunner().invoke(main, ["pull", "--endpoint", hub.url, *words], env=environment)

    return run


def weights_asked_for(hub: FakeHub) -> list[str]:
    """The weight files from which more than a header was requested."""
    whole = {path for command, path in hub.requests if command == "GET" and path.endswith(".safetensors")}
    ranged = [entry for entry in hub.ranges if entry.endswith("-")]
    return [*whole, *ranged]


def test_everything_is_said_before_the_first_byte_and_a_dry_run_ends_there(pull: Pull, hub: FakeHub) -> None:
    for model, licence in (("acme/spark-GGUF", "apache-2.0"), ("acme/spark", "mit")):
        done = pull(model, "--dry-run", "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["license"] == licence and found["gated"] is False and found["commit"] == COMMIT
        assert found["bytes"] == found["missing_bytes"] == sum(each["bytes"] for each in found["files"])
        assert found["fit"]["fits"] is True and found["fit"]["max_context"] == 2048
        words = pull(model, "--dry-run").stdout
        assert f"licence  {licence}" in words and "fits     yes" in words and "to download" in words
    assert not weights_asked_for(hub)


def test_the_fit_of_a_header_is_that_of_the_whole_file(pull: Pull) -> None:
    before = json.loads(pull("acme/spark-GGUF", "--dry-run", "--json").stdout)["fit"]
    after = json.loads(pull("acme/spark-GGUF", "--json", "--no-pack").stdout)
    again = json.loads(pull("acme/spark-GGUF", "--json", "--no-pack").stdout)
    assert before["needed_bytes"] == after["fit"]["needed_bytes"] == again["fit"]["needed_bytes"] > 0
    assert again["missing_bytes"] == 0 and after["file"] == NAME
    assert Path(after["path"]).read_bytes() == hub_models.spark_gguf()


def test_a_model_that_does_not_fit_is_refused_without_a_byte_of_weights(pull: Pull, hub: FakeHub) -> None:
    done = pull("acme/huge")
    assert done.exit_code == 4 and "does not fit" in done.stderr and "--anyway" in done.stderr
    assert not weights_asked_for(hub)
    assert pull("acme/huge", "--dry-run").exit_code == 4
    assert pull("acme/huge", "--anyway", "--no-pack").exit_code == 0


def test_a_model_that_cannot_run_is_refused_without_a_byte_of_weights(pull: Pull, hub: FakeHub) -> None:
    done = pull("acme/strange")
    assert done.exit_code == 3 and "NoSuchForCausalLM" in done.stderr and "--anyway" in done.stderr
    assert not weights_asked_for(hub)


def test_a_gated_model_says_what_to_do_and_a_token_opens_it(pull: Pull, hub: FakeHub) -> None:
    done = pull("acme/gated")
    assert done.exit_code == 3 and "gated" in done.stderr and "HF_TOKEN" in done.stderr
    assert not weights_asked_for(hub)


def test_pull_packs_what_the_first_start_maps(pull: Pull, tmp_path: Path) -> None:
    for model in ("acme/spark-GGUF", "acme/spark"):
        found = json.loads(pull(model, "--json").stdout)
        packed = Path(found["packed"])
        assert packed.is_file()
        before = packed.stat().st_ino
        asked = ["generate", "--model", found["path"], "--max-tokens", "1", "Hello"]
        done = CliRunner().invoke(main, asked, env={})
        assert done.exit_code == 0, done.output
        assert packed.stat().st_ino == before
        assert len(list(packed.parent.glob("*.pack"))) == (2 if model == "acme/spark" else 1)


@pytest.mark.daily
def test_a_hub_that_does_not_answer_gives_what_is_here(pull: Pull, hub: FakeHub) -> None:
    assert pull("acme/spark-GGUF", "--no-pack").exit_code == 0
    hub.broken = True
    done = pull("acme/spark-GGUF", "--json", "--no-pack")
    assert done.exit_code == 0 and json.loads(done.stdout)["file"] == NAME
    gone = pull("acme/huge")
    assert gone.exit_code == 3 and "could not be reached" in gone.stderr
    unknown = pull("acme/huge", "--dry-run")
    assert unknown.exit_code == 3 and "Nothing is known of acme/huge" in unknown.stderr
    offline = pull("acme/spark-GGUF", "--no-pack", HF_HUB_OFFLINE="1")
    assert offline.exit_code == 0
    assert pull("acme/huge", HF_HUB_OFFLINE="1").exit_code == 3


def test_run_downloads_what_is_not_here_and_says_what_it_is(
    pull: Pull, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import hf_api

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(hf_api.constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    words = ["run", "acme/spark-GGUF", "What is prefill?", "--max-tokens", "3", "--json"]
    first = CliRunner().invoke(main, words)
    assert first.exit_code == 0, first.stderr
    assert "licence  apache-2.0" in first.stderr and json.loads(first.stdout)["num_output_tokens"] == 3
    second = CliRunner().invoke(main, words)
    assert json.loads(second.stdout) == json.loads(first.stdout) and "licence" not in second.stderr
    assert CliRunner().invoke(main, ["run", "acme/huge", "Hello"]).exit_code == 4


def test_show_names_the_licence_that_the_hub_named(pull: Pull) -> None:
    assert pull("acme/spark-GGUF", "--no-pack").exit_code == 0
    found = json.loads(CliRunner().invoke(main, ["show", "acme/spark-GGUF", "--json"]).stdout)
    assert found["license"] == "apache-2.0" and found["quantization"] == "Q8_0 (GGUF)" and found["revision"]
    assert found["files"] == {NAME: len(hub_models.spark_gguf())} and found["reference"] == "acme/spark-GGUF"
