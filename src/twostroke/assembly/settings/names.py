"""Resolves a model's name: where it is one of this user's aliases, the model that the alias stands for."""

from __future__ import annotations

from pathlib import Path

from twostroke.assembly.settings.env import config_folder
from twostroke.types.reading.user_path import is_there
from twostroke.weights.store.aliases import meaning_of, read_aliases

ALIASES = "aliases.toml"


def alias_file() -> Path:
    """Returns the file of this user's aliases."""
    return config_folder() / ALIASES


def meant(name: str) -> str:
    """Returns the model that a name stands for: the name itself where it is a path that exists or is not an alias.
    Raises ConfigError where the aliases cannot be read."""
    if "/" in name or not name or is_there(name):
        return name
    return meaning_of(name, read_aliases(alias_file())) or name
