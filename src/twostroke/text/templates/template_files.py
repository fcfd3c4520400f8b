"""The sources of a model's chat templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twostroke.text.model_files import read_object, read_text
from twostroke.types.errors import ConfigError, CorruptModel

MAX_TEMPLATE_BYTES = 1024 * 1024
MEMBER = "chat_template"
HOLDERS = ("tokenizer_config.json", "chat_template.json")
"""Files that may have a member with the template. The second is a processor's file, next to models that see pictures.
"""


def read_sources(folder: Path, own: Path | None = None) -> dict[str, str]:
    """Returns a map of each template's name to its source. own: a file that is used in place of the model's files.
    Otherwise the first of chat_template.jinja, tokenizer_config.json and chat_template.json counts;
    additional_chat_templates/ adds named templates.

    The result is empty where there is no template. Raises CorruptModel; raises ConfigError where `own` is not a
    template.
    """
    if own is not None:
        return _given(own)
    sources = _usual(folder)
    extra = folder / "additional_chat_templates"
    if extra.is_dir():
        sources |= {path.stem: read_text(path, MAX_TEMPLATE_BYTES) for path in sorted(extra.glob("*.jinja"))}
    return sources


def read_response(folder: Path) -> Any:
    """Returns the folder's description of the form of its model's answers: the `response_template` of
    tokenizer_config.json, or the older `response_schema`. None where there is neither.

    Raises CorruptModel.
    """
    config = read_object(folder / "tokenizer_config.json")
    return config.get("response_template") or config.get("response_schema")


def _usual(folder: Path) -> dict[str, str]:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return {"default": read_text(file, MAX_TEMPLATE_BYTES)}
    for name in HOLDERS:
        if found := _named(read_object(folder / name).get(MEMBER), folder / name):
            return found
    return {}


def _given(path: Path) -> dict[str, str]:
    """Reads the file that the user gives with --chat-template: a Jinja template, or a JSON object with the member
    `chat_template`. Returns name -> template; a single template has the name "default". Raises ConfigError."""
    fix = "Give --chat-template a file with a Jinja template, or a chat_template.json."
    if not path.is_file():
        raise ConfigError(f"There is no file {path} with a chat template.", fix=fix)
    try:
        if path.suffix.lower() != ".json":
            found = {"default": read_text(path, MAX_TEMPLATE_BYTES)}
        else:
            found = _named(read_object(path).get(MEMBER), path)
    except CorruptModel as error:
        raise ConfigError(error.what, why=error.why, fix=fix) from None
    if not any(found.values()):
        raise ConfigError(f"{path} holds no chat template.", fix=fix)
    return found


def _named(value: Any, place: Path) -> dict[str, str]:
    """Returns name -> template from the value of the member `chat_template` of a JSON file. The value is a template, a
    list of objects with name and template, or an object of templates by name. place: the file. Raises CorruptModel."""
    if value is None:
        return {}
    if isinstance(value, dict):
        value = [{"name": name, "template": text} for name, text in value.items()]
    named = [{"name": "default", "template": value}] if isinstance(value, str) else value
    try:
        found = {entry["name"]: entry["template"] for entry in named}
    except (TypeError, KeyError):
        found = {"": None}
    if not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise CorruptModel(
            f"{place} has an unreadable {MEMBER}.",
            why="It is neither text nor a list of objects with name and template.",
            fix="Repair it, or give a template of your own with --chat-template.",
        )
    return found
