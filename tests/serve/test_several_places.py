"""Where several models come from, the names by which they are called, and what is read from a request about them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from twostroke.assembly.settings.option_values import parse_keep_alive
from twostroke.assets import spark_path
from twostroke.server.api.fields.keep_alive import keep_alive_s
from twostroke.server.several.asked import asked_of
from twostroke.server.several.places import file_sources, folder_sources, store_sources
from twostroke.server.several.source import ModelSource, usual_names, with_own_names
from twostroke.types.errors import ConfigError, InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300.0), ("1h30m", 5400.0), ("300", 300.0), ("1.5s", 1.5), ("250ms", 0.25), ("0", 0.0), ("0s", 0.0),
     ("-1", math.inf), ("-1m", math.inf), (" 2H ", 7200.0)],
)  # fmt: skip
def test_times_as_ollama_has_them(text: str, seconds: float) -> None:
    assert parse_keep_alive(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "5x", "5m3", "five", "-", "1 h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_keep_alive(text)
    with pytest.raises(InvalidRequest) as caught:
        keep_alive_s(text)
    assert caught.value.param == "keep_alive"


@pytest.mark.parametrize(
    ("body", "name", "keep_s", "bare"),
    [
        ({"model": "a", "messages": [{}]}, "a", None, False),
        ({"name": "a"}, "a", None, True),
        ({"model": "a", "prompt": "", "keep_alive": 0}, "a", 0.0, True),
        ({"model": "a", "input": "x", "keep_alive": -1}, "a", math.inf, False),
        ({"model": "a", "input": "x", "ttl": 60}, "a", 60.0, False),
        ({"model": 5, "keep_alive": None}, "", None, True),
        ([1], "", None, True),
    ],
)
def test_what_a_body_says_of_its_model(body: Any, name: str, keep_s: float | None, bare: bool) -> None:
    asked = asked_of(json.dumps(body).encode())
    assert (asked.asked, asked.keep_s, asked.is_bare) == (name, keep_s, bare)
    assert asked_of(b"{no JSON").asked == ""


def test_names_of_references() -> None:
    assert usual_names("llama3.2:1b") == ("llama3.2:1b",)
    assert usual_names("/srv/a/Small.Q4_1.gguf") == ("Small.Q4_1.gguf", "Small.Q4_1", "/srv/a/Small.Q4_1.gguf")
    assert usual_names("owner/repo:Q4_K_M") == ("repo:Q4_K_M", "owner/repo:Q4_K_M")


def test_a_name_is_the_first_ones_that_has_it() -> None:
    first, second = with_own_names([ModelSource("/a/x", ("x", "/a/x")), ModelSource("/b/X", ("X", "/b/X"))])
    assert (first.names, second.names) == (("x", "/a/x"), ("/b/X",))
    with pytest.raises(ConfigError) as caught:
        with_own_names([ModelSource("spark", ("spark",)), ModelSource("spark", ("spark",))])
    assert "spark" in str(caught.value)


def test_a_folder_of_models(tmp_path: Path) -> None:
    parts = ("Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf")
    for name in ("Small-1B.Q4_1.gguf", *parts, "mmproj-Big.gguf", "note.txt"):
        (tmp_path / name).touch()
    shutil.copytree(spark_path(), tmp_path / "spark-copy")
    (tmp_path / "empty").mkdir()
    found = {source.name: source for source in folder_sources(tmp_path, {"threads": "1"}, 60.0)}
    assert set(found) == {"Small-1B", "Big-00001-of-00002", "spark-copy"}
    assert found["Small-1B"].names[1:] == ("Small-1B.Q4_1", "Small-1B.Q4_1.gguf", str(tmp_path / "Small-1B.Q4_1.gguf"))
    assert (found["Small-1B"].options, found["Small-1B"].keep_s) == ({"threads": "1"}, 60.0)
    for folder in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(ConfigError):
            folder_sources(folder, {}, 60.0)


def test_the_store_is_served_by_the_paths_of_its_files(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--owner--repo" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "it-Q4_0.gguf").write_bytes(b"x")
    (found,) = store_sources(tmp_path, {}, 60.0)
    assert (found.reference, found.name) == (str(snapshot / "it-Q4_0.gguf"), "owner/repo:Q4_0")
    with pytest.raises(ConfigError):
        store_sources(tmp_path / "models--owner--repo", {}, 60.0)


FILE = """
[all]
threads = 2
keep_alive = "10m"
[models."llama3.2:1b"]
pinned = true
threads = 1
aliases = ["gpt-4o-mini"]
defaults = { temperature = 0.6 }
[models.mine]
model = "/srv/mine"
keep_alive = 0
[models.mine.adapter]
fr = "/srv/fr"
"""


def test_a_file_of_models(tmp_path: Path) -> None:
    """Flags take precedence over a table, and a table over [all]."""
    file = tmp_path / "models.toml"
    file.write_text(FILE)
    pinned, mine = file_sources(file, {"context": "512"}, 300.0)
    assert (pinned.names, pinned.shown) == (("llama3.2:1b", "gpt-4o-mini"), ("llama3.2:1b", "gpt-4o-mini"))
    assert pinned.options == {"threads": "1", "context": "512"}
    assert (pinned.pinned, pinned.keep_s, pinned.defaults) == (True, 600.0, {"temperature": 0.6})
    assert (mine.reference, mine.names) == ("/srv/mine", ("mine", "/srv/mine"))
    assert mine.options == {"threads": "2", "context": "512", "adapter": ("fr=/srv/fr",)}
    assert (mine.pinned, mine.keep_s) == (False, 0.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no model"),
        ("[models]", "names no model"),
        ("[modles.a]", "Did you mean 'models'"),
        ("[models.a]\nthread = 2", "Did you mean 'threads'"),
        ("[models.a]\nport = 2", "'port'"),
        ("[models.a]\npinned = 1", "true or false"),
        ("[models.a]\naliases = 'x'", "list of names"),
        ("[models.a]\nmodel = 3", "model is no text"),
        ("[models.a]\nkeep_alive = 'soon'", "keep_alive"),
        ("[models.a]\ndefaults = { temprature = 1 }", "Did you mean 'temperature'"),
        ("[models.a]\ndefaults = { temperature = -1 }", "temperature"),
        ("models = 3", "no table"),
        ("[models.a", "no TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        file_sources(file, {}, 300.0)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        file_sources(tmp_path / "none.toml", {}, 300.0)
