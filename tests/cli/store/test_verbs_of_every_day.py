"""`alias`, `show`, `run`, `ps`, `stop`, `cache gc`, with the embedded model."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from tests.patience import PATIENCE_S
from twostroke.assets import spark_path
from twostroke.cli.main import main
from twostroke.cli.shared import server_records
from twostroke.cli.shared.server_records import ServerRecord, began_of, recorded, running_servers


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command with a home of its own. text: its standard input, for which it needs a process of its own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def command(*words: str, text: str | None = None) -> Done:
        if text is None:
            done = CliRunner().invoke(main, words, env=home(tmp_path))
            return Done(done.exit_code, done.stdout, done.stderr)
        call = [sys.executable, "-m", "twostroke", *words]
        ended = subprocess.run(call, capture_output=True, text=True, env=home(tmp_path), timeout=120, input=text)
        return Done(ended.returncode, ended.stdout, ended.stderr)

    return command


def home(folder: Path) -> dict[str, str]:
    places = {"XDG_CACHE_HOME": folder / "cache", "XDG_CONFIG_HOME": folder / "config", "HF_HUB_CACHE": folder / "hub"}
    return {**os.environ, **{name: str(place) for name, place in places.items()}, "HF_HUB_OFFLINE": "1"}


@contextlib.contextmanager
def server(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of the embedded model: its process and its address."""
    call = [sys.executable, "-m", "twostroke", "serve", *words, "--port", "0", "--json"]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=home(folder))
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n") or not _is_json(text):
            line = process.stdout.readline()
            assert line, text
            text += line
        yield process, json.loads(text)["url"]
    finally:
        process.kill()
        process.wait()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_an_alias_counts_wherever_a_model_is_named(run: Run, tmp_path: Path) -> None:
    assert run("alias", "mine", "spark").stdout == "mine = spark\n"
    assert json.loads(run("alias", "--json").stdout)["aliases"] == {"mine": "spark"}
    asked = ("What is prefill?", "--max-tokens", "4", "--json")
    texts = [run("generate", "--model", name, *asked).stdout for name in ("spark", "MINE:latest")]
    ids = [json.loads(text)["completions"][0]["token_ids"] for text in texts]
    assert ids[0] == ids[1]
    assert json.loads(run("show", "mine", "--json").stdout)["architecture"] == "LlamaForCausalLM"
    assert json.loads(run("plan", "mine", "--hardware", "h100-sxm", "--json").stdout)["architecture"]
    assert run("alias", "second", "mine").stdout == "second = spark\n"
    assert run("alias", "--rm", "mine").returncode == 0
    assert run("show", "mine").returncode == 3 and run("show", "second").returncode == 0
    for words in (("alias", "spark", "a/b"), ("alias", "--rm", "none"), ("alias", "none"), ("alias", "a/b", "spark")):
        assert run(*words).returncode == 2
    assert run("alias", "x", "no-such-model").returncode == 3
    (tmp_path / "config" / "twostroke" / "aliases.toml").write_text("[aliases")
    broken = run("show", "second")
    assert broken.returncode == 2 and "damaged" in broken.stderr and "fix:" in broken.stderr
    assert run("show", "spark").returncode == 2  # this user has no such name


def test_show(run: Run, tmp_path: Path) -> None:
    found = json.loads(run("show", "spark", "--json").stdout)
    assert found["template"] == ["default"] and found["context"] == 2048 and found["fit"]["fits"] is True
    assert found["files"]["config.json"] > 0 and found["quantization"] == "none: bfloat16"
    words = run("show", "spark").stdout
    assert "architecture" in words and "5.0 million" in words
    assert run("show", "spark", "--template").stdout.count("{%") > 1
    assert list(json.loads(run("show", "spark", "--template", "--json").stdout)["template"]) == ["default"]
    assert json.loads(run("show", "spark", "--files", "--json").stdout)["files"] == found["files"]
    assert "config.json" in run("show", "spark", "--files").stdout
    for part in ("--parameters", "--license"):
        done = run("show", "spark", part)
        assert done.returncode == 0 or "The model has no" in done.stderr
    missing = run("show", "acme/none")
    assert missing.returncode == 3 and "twostroke pull acme/none" in missing.stderr


def test_a_model_of_this_machine_needs_no_pull(run: Run) -> None:
    done = run("pull", str(spark_path()))
    assert done.returncode == 0 and "nothing to download" in done.stdout and str(spark_path()) in done.stdout


def test_run_in_this_process_takes_prompt_and_standard_input(run: Run) -> None:
    one = json.loads(run("run", "spark", "What is prefill?", "--max-tokens", "5", "--json").stdout)
    assert one["server"] is None and one["num_output_tokens"] == 5 and one["finish_reason"] == "length"
    piped = json.loads(run("run", "spark", "--max-tokens", "5", "--json", text="What is prefill?").stdout)
    assert piped == one
    both = run("run", "spark", "Say it again:", "--max-tokens", "5", "--json", text="What is prefill?")
    assert json.loads(both.stdout)["num_prompt_tokens"] > one["num_prompt_tokens"]
    assert run("run", "spark", "What is prefill?", "--max-tokens", "5").stdout.strip() == one["text"].strip()
    assert run("run", "spark", text="").returncode == 2
    assert run("run", "acme/none", "Hello").returncode == 3


def test_run_asks_a_server_that_has_the_model_and_stop_ends_it(run: Run, tmp_path: Path) -> None:
    asked = ("What is prefill?", "--max-tokens", "8", "--json")
    run("alias", "mine", "spark")
    with server(tmp_path, "spark", "--served-name", "little") as (process, url):
        shown = json.loads(run("ps", "--json").stdout)["servers"]
        assert [(each["url"], each["pid"], each["problem"]) for each in shown] == [(url, process.pid, "")]
        answers = [json.loads(run("run", name, *asked).stdout) for name in ("spark", "little", "mine")]
        assert [(each["server"], each["text"]) for each in answers] == [(url, answers[0]["text"])] * 3
        alone = json.loads(run("run", "spark", *asked, "--local").stdout)
        assert alone["server"] is None and alone["text"] == answers[0]["text"]
        assert alone["num_prompt_tokens"] == answers[0]["num_prompt_tokens"]
        assert run("run", "spark", "Hello", "--max-tokens", "2", "--url", url).returncode == 0
        assert run("run", "wrong", "Hello", "--url", url).returncode == 2
        assert run("stop", "other").returncode == 2
        stopped = run("stop", "little", "--json")
        assert json.loads(stopped.stdout)["stopped"][0]["pid"] == process.pid, stopped.stderr
        assert process.wait(PATIENCE_S) == 0
    gone = run("stop")
    assert gone.returncode == 2 and "No server of this user" in gone.stderr
    assert not list((tmp_path / "cache" / "twostroke" / "servers").glob("*.json"))


def test_a_server_with_a_key_and_one_that_was_killed(run: Run, tmp_path: Path) -> None:
    asked = ("spark", "Hello", "--max-tokens", "2", "--json")
    with server(tmp_path, "spark", "--api-key", "k") as (process, url):
        keyless = run("run", *asked)
        assert json.loads(keyless.stdout)["server"] is None and "--api-key" in keyless.stderr
        assert json.loads(run("run", *asked, "--api-key", "k").stdout)["server"] == url
        locked = json.loads(run("ps", "--json").stdout)["servers"][0]
        assert locked["problem"] and locked["pid"] == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads(run("run", *asked).stdout)["server"] is None
        assert run("stop").returncode == 2


def test_a_supervised_server_is_ended_by_its_supervisor(run: Run, tmp_path: Path) -> None:
    with server(tmp_path, "spark", "--supervise") as (process, _):
        assert run("stop").returncode == 0
        assert process.wait(PATIENCE_S) == 0


def test_stop_lets_one_model_of_several_leave_and_the_others_go_on(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "models" / "second"
    shutil.copytree(spark_path(), copy)
    run("alias", "mine", str(copy))
    with server(tmp_path, "spark", str(copy), "--kv-memory", "20MB", "--threads", "1") as (process, url):
        loaded = [each["name"] for each in json.loads(run("ps", "--json").stdout)["models"]]
        assert loaded == ["spark:latest", "second:latest"]
        asked = ("Hi", "--max-tokens", "3", "--json")
        answers = [json.loads(run("run", name, *asked).stdout) for name in ("second", "mine")]
        assert [each["server"] for each in answers] == [url, url]
        cut = run("stop", "second", "--now")
        assert cut.returncode == 2 and "--all --now" in cut.stderr
        gone = json.loads(run("stop", "mine", "--json").stdout)
        assert gone["stopped"] == [] and gone["unloaded"][0]["model"] == "second"
        left = [each["name"] for each in json.loads(run("ps", "--json").stdout)["models"]]
        assert left == ["spark:latest"] and process.poll() is None
        assert run("stop", "spark").stdout.startswith("unloaded: spark")
        assert "nothing is loaded" in run("ps").stdout
        assert run("stop", "nobody").returncode == 2
        assert json.loads(run("stop", "--json").stdout)["stopped"][0]["pid"] == process.pid
        assert process.wait(60) == 0


def test_records_of_other_processes_are_not_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(tmp_path, os.getpid(), "http://127.0.0.1:1", "spark", ["little"]):
        (found,) = running_servers(tmp_path)
        assert found == ServerRecord(os.getpid(), began_of(os.getpid()), "http://127.0.0.1:1", "spark", ("little",))
    assert running_servers(tmp_path) == []
    (tmp_path / "1.json").write_text(f'{{"pid":{os.getpid()},"began":"7","url":"","model":"","names":["x"]}}')
    (tmp_path / "2.json").write_text("{")
    assert running_servers(tmp_path) == [] and not list(tmp_path.iterdir())
    assert began_of(1 << 22) == "" and running_servers(tmp_path / "none") == []

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(server_records, "write_whole", full)
    with recorded(tmp_path, os.getpid(), "", "spark", ["little"]):
        assert running_servers(tmp_path) == []


def test_a_server_in_a_namespace_with_a_foreign_proc_is_not_taken_for_its_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in `unshare --pid --fork`, where /proc/1 is the machine's init
    with recorded(tmp_path, 1, "http://127.0.0.1:1", "spark", ["little"]):
        assert running_servers(tmp_path) == []


def test_gc_lists_first_and_deletes_when_told(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in spark_path().iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert run("generate", "--model", str(copy), "Hello", "--max-tokens", "1").returncode == 0
    packed = tmp_path / "cache" / "twostroke" / "packed"
    assert len(list(packed.glob("*.pack"))) == 1
    assert json.loads(run("cache", "gc", "--json").stdout)["files"] == []
    for path in copy.iterdir():
        path.unlink()
    copy.rmdir()
    listed = json.loads(run("cache", "gc", "--json").stdout)
    assert [each["why"] for each in listed["files"]] == ["its model is gone"] and listed["removed"] is False
    assert len(list(packed.glob("*.pack"))) == 1
    freed = json.loads(run("cache", "gc", "--yes", "--json").stdout)
    assert freed["freed_bytes"] == listed["files"][0]["bytes"] and not list(packed.glob("*.pack"))
    assert json.loads(run("cache", "gc", "--yes", "--json").stdout)["freed_bytes"] == 0
    assert run("cache", "gc", "--older", "3 years").returncode == 2


def test_a_chat_goes_on_over_a_server(tmp_path: Path) -> None:
    from twostroke.cli.chat import ChatJson, Conversation
    from twostroke.cli.store.served_model import ServedModel
    from twostroke.types.sampling.sampling_params import SamplingParams

    with server(tmp_path, "spark") as (_, url):
        served = ServedModel(url, "spark", None)
        conversation = Conversation(served, SamplingParams(temperature=0.0, max_tokens=6), None, ChatJson())
        assert conversation.handle("What is prefill?") and conversation.handle("And decode?")
        assert [each["role"] for each in conversation.messages] == ["user", "assistant"] * 2
        assert all(each["content"] for each in conversation.messages)
        assert conversation.stats() == conversation.explanation() == "No answer yet."


def test_run_needs_a_model() -> None:
    assert CliRunner().invoke(main, ["run"]).exit_code == 2
