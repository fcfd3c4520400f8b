"""How a model converses, as `config --talk` and `doctor MODEL` print it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.serve.sessions.scripted import write_scripted
from twostroke.cli.main import main

SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"


def ran(*words: str) -> str:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a template that thinks, that has a switch for thinking and no place for tools, and with defaults
    for sampling."""
    folder = write_scripted(tmp_path_factory.mktemp("talk") / "model", "hello")
    kept: Any = json.loads((folder / "tokenizer_config.json").read_text())
    kept["chat_template"] = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n" + SWITCH + "{% endif %}"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_k": 20}))
    return folder


def test_a_model_that_thinks(thinking: Path) -> None:
    made = json.loads(ran("doctor", str(thinking), "--json"))
    assert made["sampling"] == {"temperature": 0.6, "top_k": 20}
    assert made["switches"]["off"] == {"enable_thinking": False}
    assert made["takes"]["offered tools"].startswith("Twostroke writes them")
    assert "<|im_end|>" in made["ends"] and "</think>" in made["format"]["thought"]
    assert json.loads(ran("config", str(thinking), "--talk", "--json")) == made


def test_the_lines_for_people(thinking: Path) -> None:
    text = ran("config", str(thinking), "--talk")
    for line in ("enable_thinking = False", "temperature 0.6, top_k 20", "<|im_end|>"):
        assert line in text


def test_a_format_that_the_user_names(thinking: Path) -> None:
    made = json.loads(ran("config", str(thinking), "--talk", "--json", "--tool-format", "kimi"))
    assert made["format"]["format"] == "kimi" and "the operator named it" in made["format"]["found"]


def test_the_template_that_shows_tools_is_said_to(tmp_path: Path) -> None:
    made = json.loads(ran("doctor", str(write_scripted(tmp_path / "model", "hello")), "--json"))
    assert made["format"]["format"] == "hermes"
    assert all(text == "the template shows them" for text in made["takes"].values()) and not made["switches"]
