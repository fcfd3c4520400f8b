"""The verbs of the store where call number k fails, where nothing can be written, and where a process is killed. Each
gives one clear error and loses nothing, and the next run ends well."""

from __future__ import annotations

import builtins
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants

from tests.serve.harness import wait_until
from tests.tiers import rest_daily
from tests.weights import hub_models
from tests.weights.fake_hub import FakeHub, serve
from tests.weights.hub_models import NAME
from twostroke.cli.main import main
from twostroke.types.errors import ModelError
from twostroke.weights.hub.hub import resolve_model

MOST = 400
FOLDER = ("acme/spark", 9)
"""A repository that is a folder, in which every ninth call fails in turn."""
CALLS = ("pwrite", "fsync", "replace", "mkdir", "symlink", "ftruncate", "posix_fallocate", "unlink", "rename")
NOWHERE = "/dev/null/x"
MOST_LOST = 1 << 20
"""The most bytes that a killed process may have only in memory."""


@pytest.fixture(scope="module")
def repos() -> dict[str, Any]:
    return hub_models.repos()


@pytest.fixture
def hub(repos: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve(repos) as running:
        yield running


def call(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, list(words), env=environment)


def is_clear(done: Result) -> bool:
    """Whether the run succeeded, or was refused with a documented code and a message of what, why and what to do."""
    return done.exit_code == 0 or (
        done.exit_code in (2, 3) and done.stderr.count("error: ") == 1 and "fix: " in done.stderr
    )


class Kth:
    """Counts the calls below one folder. Call number k raises."""

    def __init__(self, number: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.fails_at, self.code = 0, number, code
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        real = builtins.open
        counted = self.wrap(real)
        monkeypatch.setattr(builtins, "open", lambda *a, **n: (counted if _writes(a, n) else real)(*a, **n))

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name != "fake hub":
                self.calls += 1
                if self.calls == self.fails_at:
                    raise OSError(self.code, os.strerror(self.code), "a file")
            return real(*args, **kwargs)

        return counted


def _writes(args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    mode = args[1] if len(args) > 1 else named.get("mode", "r")
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


CODES = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "step"), rest_daily([("acme/spark-GGUF:Q8_0", 3), FOLDER], [FOLDER]))
def test_any_write_of_a_download_may_fail(
    hub: FakeHub, model: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command runs twice, because files that the first run left must not stop the second run."""
    wrong: list[str] = []
    for k in range(1, MOST, step):
        place = tmp_path / str(k)
        with monkeypatch.context() as broken:
            kth = Kth(k, CODES[k % len(CODES)], broken)
            try:
                resolve_model(model, cache_dir=place, endpoint=hub.url)
            except ModelError as error:
                if not (error.why and error.fix):
                    wrong.append(f"{k}: {error}")
            except Exception as error:
                wrong.append(f"{k}: {type(error).__name__} {error}")
        if kth.calls < k:
            break
        found = resolve_model(model, cache_dir=place, endpoint=hub.url).path
        whole = hub_models.spark_gguf() if found.is_file() else hub_models.spark_files()["model.safetensors"]
        assert (found if found.is_file() else found / "model.safetensors").read_bytes() == whole
    else:
        raise AssertionError("it never passes")
    assert wrong == []
    assert k > 5


def test_nothing_can_be_written_anywhere(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", NOWHERE)
    places = {"XDG_CACHE_HOME": NOWHERE, "XDG_CONFIG_HOME": NOWHERE}
    assert call("list", **places).exit_code == 0
    assert call("alias", **places).exit_code == 0
    assert call("show", "spark", **places).exit_code == 0
    assert "Nothing" in call("cache", "gc", **places).stdout
    done = call("run", "spark", "What is prefill?", "--max-tokens", "3", **places)
    assert done.exit_code == 0 and done.stdout.strip()
    for words in (
        ("alias", "mine", "spark"),
        ("stop",),
        ("rm", "acme/spark", "--yes"),
        ("show", "acme/spark"),
        ("pull", "acme/spark-GGUF", "--endpoint", hub.url),
        ("pull", "acme/spark", "--endpoint", hub.url),
    ):
        refused = call(*words, **places)
        assert refused.exit_code in (2, 3) and is_clear(refused), (words, refused.stderr)
    assert not [path for command, path in hub.requests if command == "GET" and path.endswith(".safetensors")]


def test_our_cache_cannot_be_written_and_the_hubs_can(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    done = call("pull", "acme/spark-GGUF", "--endpoint", hub.url, "--json", XDG_CACHE_HOME=NOWHERE)
    assert done.exit_code == 0 and json.loads(done.stdout)["packed"] is None
    assert "cannot be kept" in done.stderr and "are not kept" in done.stderr
    assert Path(json.loads(done.stdout)["path"]).read_bytes() == hub_models.spark_gguf()


@pytest.mark.parametrize("share", [0.7, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.0, 0.3, 0.999))])
def test_a_pull_that_is_killed_goes_on_where_it_was(hub: FakeHub, tmp_path: Path, share: float) -> None:
    content = hub_models.spark_gguf()
    at = int(share * len(content))
    names = {"HF_HUB_CACHE": str(tmp_path / "hub"), "XDG_CACHE_HOME": str(tmp_path / "c"), "HF_ENDPOINT": hub.url}
    command = [sys.executable, "-m", "twostroke", "pull", "acme/spark-GGUF", "--no-pack", "--json"]
    environment = {**os.environ, **names}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def lost() -> int:
        kept = [file.stat().st_size for file in (tmp_path / "hub").rglob("*partial")]
        return at - max([*kept, 0])

    def kill(name: str) -> None:
        wait_until(lambda: lost() <= MOST_LOST, "what was sent on the disk")
        process.send_signal(signal.SIGKILL)
        process.wait()

    hub.stops_at[NAME] = (at, kill)
    assert process.wait(60) == -signal.SIGKILL
    process.communicate()
    hub.stops_at.clear()
    hub.ranges.clear()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["path"]).read_bytes() == content
    begins = [int(entry.split("bytes=")[1][:-1]) for entry in hub.ranges if entry.endswith("-")]
    assert at - max([*begins, 0]) <= MOST_LOST
    assert not list((tmp_path / "hub").rglob("*partial"))
