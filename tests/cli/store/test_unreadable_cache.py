"""The user may not read the cache folder. A command that needs it ends with one clear error; all others work."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants

from twostroke.assets import spark_path
from twostroke.cli.main import main

CALLS = ("stat", "lstat", "open", "listdir", "scandir", "mkdir", "unlink", "utime")


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A verb of a user who may not look into the cache folder. Root may look anywhere, so calls are refused here."""
    cache = str(tmp_path / "cache")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any = ".", *more: Any, **named: Any) -> Any:
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(cache):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
            return real(path, *more, **named)

        return called

    def verb(*words: str) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, refusing(getattr(os, name)))
            patch.setattr(io, "open", opened := refusing(io.open))
            patch.setattr(builtins, "open", opened)
            return CliRunner().invoke(
                main, list(words), env={"XDG_CACHE_HOME": cache, "XDG_CONFIG_HOME": cache + "-not"}
            )

    return verb


def test_a_model_runs_without_its_cache(locked: Callable[..., Result], tmp_path: Path) -> None:
    shutil.copytree(spark_path(), tmp_path / "model")
    done = locked("run", str(tmp_path / "model"), "What is prefill?", "--max-tokens", "3", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["num_output_tokens"] == 3
    assert "cannot be kept" in done.stderr and "Permission denied" in done.stderr
    shown = locked("show", str(tmp_path / "model"), "--json")
    assert shown.exit_code == 0 and json.loads(shown.stdout)["packed"] == {}


@pytest.mark.parametrize("words", [("list",), ("verify",), ("gc",), ("gc", "--yes"), ("rm", "--all")], ids=" ".join)
def test_a_cache_that_cannot_be_read_is_not_an_empty_one(locked: Callable[..., Result], words: tuple[str, ...]) -> None:
    done = locked("cache", *words)
    assert done.exit_code == 2 and "cannot be read" in done.stderr and "fix:" in done.stderr, done.output
