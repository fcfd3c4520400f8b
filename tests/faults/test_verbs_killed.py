"""Verbs of the store that are killed before their k-th change of a disk: nothing is lost, and the same verb once more
ends as if nothing had been. Each one runs in a fork of this process."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from tests.weights.store.test_cached import GGUFS, put, used
from twostroke.cli.main import main
from twostroke.weights.store.aliases import read_aliases
from twostroke.weights.store.cached import cached_models

CHANGES = (
    *("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "symlink", "link", "fsync", "ftruncate", "utime"),
)
MOST = 60


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def call(home: Path, *words: str) -> tuple[int, str]:
    """A verb in this process: its code and what it printed."""
    places = {"XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
    done = CliRunner().invoke(main, list(words), env=places)
    assert "Traceback" not in done.output and "Unexpected" not in done.output, done.output
    return done.exit_code, done.output


def killed_before(k: int, home: Path, *words: str) -> bool:
    """Run a verb that is killed before its k-th change of a disk. Returns False where it ended before."""
    pid = os.fork()
    if not pid:
        try:
            _count(k)
            code, output = call(home, *words)
            os.write(2, output.encode() if code else b"")
            os._exit(code)
        finally:
            os._exit(99)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _count(k: int) -> None:
    """In the fork: the process is killed before its k-th change."""
    calls = 0

    def counted(real: Callable[..., Any], changes: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            nonlocal calls
            if changes(*args, **named):
                calls += 1
                if calls == k:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)

        return wrapped

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name), lambda *args, **named: True))
    os.open = counted(os.open, lambda path, flags, *args, **named: bool(flags & (os.O_WRONLY | os.O_RDWR)))
    builtins.open = io.open = counted(open, _writes)


def _writes(_path: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    return any(letter in mode for letter in "wax+")


@pytest.mark.parametrize("words", [("alias", "two", "spark"), ("alias", "--rm", "one")], ids=["set", "forget"])
def test_aliases(home: Path, words: tuple[str, ...]) -> None:
    file = home / "config" / "twostroke" / "aliases.toml"
    before = {"kept": "spark", "one": "spark-draft"}
    after = {**before, "two": "spark"} if words[1] == "two" else {"kept": "spark"}
    for k in range(1, MOST):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[aliases]\n" + "".join(f'{name} = "{model}"\n' for name, model in before.items()))
        killed = killed_before(k, home, *words)
        assert read_aliases(file) in (before, after)
        assert call(home, "alias")[0] == 0
        if not killed:
            assert read_aliases(file) == after
            break
    assert 3 < k < MOST


@pytest.mark.parametrize("model", ["acme/t:Q8_0", "acme/t"])
def test_a_removal_frees_the_rest_the_next_time(home: Path, model: str) -> None:
    """Bytes without a name would be lost: no verb would find them."""
    cache, seen = home / "hub", set[tuple[bool, ...]]()
    for k in range(1, MOST):
        shutil.rmtree(cache, ignore_errors=True)
        put(cache, "acme/t", GGUFS)
        put(cache, "acme/other", {"o-Q4_0.gguf": 77})
        killed = killed_before(k, home, "rm", model, "--yes")
        listed = {each.name: each for each in cached_models(cache)}
        for each in listed.values():  # what is called whole is whole
            assert not each.whole or each.num_bytes == {"acme/t:Q4_0": 100, "acme/t:Q8_0": 401, "acme/other:Q4_0": 77}[
                each.name
            ]
        seen.add(tuple(each.whole for each in listed.values()))
        assert call(home, "list")[0] == 0
        assert call(home, "rm", model, "--yes")[0] in (0, 3)
        left = 100 + 1 if model.endswith("Q8_0") else 0
        assert used(cache) - _refs(cache) == left + 77
        if not killed:
            break
    assert 5 < k < MOST and len(seen) > 1


def _refs(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.glob("models--*/refs/*"))
