"""The sources of a model's chat templates.

Knows: where a model folder keeps them.
Must not know: what they mean.
"""

from __future__ import annotations

from pathlib import Path

from twostroke.text.model_files import read_object, read_text
from twostroke.types.errors import CorruptModel

MAX_TEMPLATE_BYTES = 1024 * 1024


def read_sources(folder: Path) -> dict[str, str]:
    """Name -> source. chat_template.jinja wins over tokenizer_config.json; additional_chat_templates/ adds named ones.

    Empty where there is none. Raises CorruptModel.
    """
    file = folder / "chat_template.jinja"
    if file.is_file():
        sources = {"default": read_text(file, MAX_TEMPLATE_BYTES)}
        extra = folder / "additional_chat_templates"
        if extra.is_dir():
            sources |= {path.stem: read_text(path, MAX_TEMPLATE_BYTES) for path in sorted(extra.glob("*.jinja"))}
        return sources
    value = read_object(folder / "tokenizer_config.json").get("chat_template")
    if value is None:
        return {}
    named = [{"name": "default", "template": value}] if isinstance(value, str) else value
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in named}
    except (TypeError, KeyError) as error:
        raise CorruptModel(
            f"{folder / 'tokenizer_config.json'} has an unreadable chat_template.",
            why="It is neither text nor a list of objects with name and template.",
        ) from error
