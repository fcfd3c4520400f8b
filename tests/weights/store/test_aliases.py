"""Aliases: their meaning, words that cannot be one, and a file that is whole after any failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from twostroke.types.errors import ConfigError
from twostroke.weights.store import whole_file
from twostroke.weights.store.aliases import meaning_of, read_aliases, remove_alias, set_alias

MODEL = "unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"


def test_set_read_and_remove(tmp_path: Path) -> None:
    file = tmp_path / "new" / "aliases.toml"
    assert read_aliases(file) == {}
    assert set_alias(file, "mine", MODEL) is None
    assert set_alias(file, "other:8b", '/srv/mod"els/a\\b') is None
    assert set_alias(file, "Mine:latest", "a/b") == MODEL
    found = read_aliases(file)
    assert found == {"other:8b": '/srv/mod"els/a\\b', "Mine:latest": "a/b"}
    assert meaning_of("mine", found) == "a/b" == meaning_of("MINE:latest", found)
    assert meaning_of("other", found) is None and meaning_of("other:8B", found) is not None
    assert remove_alias(file, "mine") == "a/b" and remove_alias(file, "mine") is None
    assert list(read_aliases(file)) == ["other:8b"]
    assert sorted(path.suffix for path in file.parent.iterdir()) == [".lock", ".toml"]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "-x", "two words", "a:b:c", "x" * 200, "ä"])
def test_what_cannot_be_an_alias(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be an alias"):
        set_alias(tmp_path / "aliases.toml", name, MODEL)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[aliases", "damaged"), (b"aliases = 3", "damaged"), (b"[aliases]\nx = 3", "damaged"), (b"\xff", "damaged")],
)
def test_a_damaged_file_is_one_clear_error_and_stays(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "aliases.toml"
    file.write_bytes(content)
    for act in (lambda: read_aliases(file), lambda: set_alias(file, "mine", MODEL)):
        with pytest.raises(ConfigError, match=words) as caught:
            act()
        assert caught.value.why and caught.value.fix
    assert file.read_bytes() == content


@pytest.mark.parametrize("call", ["mkstemp", "fsync", "replace"])
def test_a_full_disk_at_any_call_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    file = tmp_path / "aliases.toml"
    set_alias(file, "mine", MODEL)

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_file.tempfile if call == "mkstemp" else whole_file.os, call, full)
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        set_alias(file, "other", "a/b")
    assert "No space left" in caught.value.why and caught.value.fix
    monkeypatch.undo()
    assert read_aliases(file) == {"mine": MODEL}
    assert {path.name for path in tmp_path.iterdir()} == {"aliases.toml", ".aliases.toml.lock"}


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert read_aliases(tmp_path / "file" / "aliases.toml") == {}
    with pytest.raises(ConfigError, match="cannot be written"):
        set_alias(tmp_path / "file" / "aliases.toml", "mine", MODEL)
