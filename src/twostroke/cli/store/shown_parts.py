"""Shows one part of a model's facts in full: its chat templates, its licence, its sampling defaults, or its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twostroke.cli.store.facts import found_here, license_file, license_of, model_files
from twostroke.types.errors import ConfigError

MOST_LICENSE_BYTES = 1 << 20


def templates_of(model: str, revision: str | None) -> dict[str, str]:
    """Returns the sources of the model's chat templates, by name. Raises ModelNotFound, CorruptModel."""
    from twostroke.text.templates.template_files import read_sources

    return read_sources(_folder(model, revision))


def parameters_of(model: str, revision: str | None) -> dict[str, Any]:
    """Returns the sampling values that the model's publisher recommends. Raises ModelNotFound, CorruptModel."""
    from twostroke.weights.generation import read_generation_defaults

    return dict(read_generation_defaults(_folder(model, revision)).sampling)


def license_text(model: str, revision: str | None) -> dict[str, str]:
    """Returns the name of the model's licence, and its text where the model has a file with the text. Raises
    ModelNotFound."""
    from twostroke.text.model_files import read_text

    path = found_here(model, revision).path
    file = license_file(path)
    text = {} if file is None else {"text": read_text(file, MOST_LICENSE_BYTES)}
    return {"name": license_of(model, path), **text}


def files_of(model: str, revision: str | None) -> dict[str, int]:
    """Returns the sizes of the model's files in bytes, by name. Raises ModelNotFound."""
    return model_files(found_here(model, revision).path)


def _folder(model: str, revision: str | None) -> Path:
    """Returns the folder that has the model's settings. A GGUF file is unfolded into a folder first."""
    from twostroke.assembly.settings.env import read_machine
    from twostroke.weights.gguf.unfold import unfold
    from twostroke.weights.vocabularies.unfold import with_tokenizer

    path, kept = found_here(model, revision).path, read_machine().cache_folder
    return unfold(path, kept) if path.is_file() else with_tokenizer(path, kept)


def words_of(part: str, found: Mapping[str, Any]) -> str:
    """Returns one part of a model's description, such as the license, as text for people. Raises ConfigError where the
    model does not have this part."""
    if not any(found.values()):
        raise ConfigError(f"The model has no {part}.", fix="See `twostroke show` for what it has.")
    if part == "license":
        return str(found.get("text") or found["name"])
    if part == "template":
        one = len(found) == 1
        return "\n".join(text if one else f"{name}:\n{text}" for name, text in found.items())
    return "\n".join(f"{name:<30} {value}" for name, value in found.items())


PARTS: dict[str, Callable[[str, str | None], Mapping[str, Any]]] = {
    "template": templates_of,
    "parameters": parameters_of,
    "license": license_text,
    "files": files_of,
}
