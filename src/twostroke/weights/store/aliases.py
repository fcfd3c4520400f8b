"""Names that a user gives to models, kept in a small file that can also be written by hand.

    [aliases]
    "mine" = "unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"

An alias has no slash, so it is never taken for a path below a folder, nor for an id of the hub. It is looked up before
the table of short names.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from twostroke.types.errors import ConfigError
from twostroke.types.reading.unreadable import why_unreadable
from twostroke.weights.store.whole_file import one_writer, write_whole

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(:[A-Za-z0-9._-]{1,64})?")
_LATEST = ":latest"
_TABLE = "aliases"


def plain(name: str) -> str:
    """Returns the form in which aliases are compared: no capitals, and no tag where the tag is `latest`."""
    return name.lower().removesuffix(_LATEST)


def check_alias(name: str) -> None:
    """Raises ConfigError for a text that cannot be an alias."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} cannot be an alias.",
            why="An alias has letters, digits, dots, dashes and underscores, and perhaps a tag after a colon.",
            fix="Take a name such as `mine` or `mine:8b`.",
        )


def read_aliases(path: Path) -> dict[str, str]:
    """Returns the models by their aliases, in the order of the file. Without a file the result is empty. Raises
    ConfigError where the file is damaged or cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        fix = "Give this user leave to read it, or name the model in full."
        raise ConfigError(f"The aliases in {path} cannot be read.", why=why_unreadable(error), fix=fix) from None
    except UnicodeDecodeError:
        raise _damaged(path, "It is not UTF-8") from None
    try:
        found = tomllib.loads(text).get(_TABLE, {})
    except tomllib.TOMLDecodeError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(found, dict) or not all(isinstance(model, str) for model in found.values()):
        raise _damaged(path, f"[{_TABLE}] must hold names and texts")
    return {str(name): str(model) for name, model in found.items()}


def meaning_of(name: str, aliases: Mapping[str, str]) -> str | None:
    """Returns the model that an alias stands for; None for other names."""
    return next((model for alias, model in aliases.items() if plain(alias) == plain(name)), None)


def set_alias(path: Path, name: str, model: str) -> str | None:
    """Lets `name` stand for `model`. Returns the model for which it stood before, or None. Raises ConfigError where the
    alias cannot be kept."""
    check_alias(name)
    if not model.isprintable():
        raise ConfigError(f"{model[:80]!r} cannot be kept.", why="It has characters that no line of text can hold.")
    return _change(path, name, model)


def remove_alias(path: Path, name: str) -> str | None:
    """Removes an alias. Returns the model for which it stood; None where there was no such alias. Raises ConfigError.
    """
    return _change(path, name, None)


def _change(path: Path, name: str, model: str | None) -> str | None:
    try:
        with one_writer(path):
            found = read_aliases(path)
            before = meaning_of(name, found)
            left = {alias: meant for alias, meant in found.items() if plain(alias) != plain(name)}
            if model is not None:
                left[name] = model
            if left != found:
                write_whole(path, _text(left))
            return before
    except OSError as error:
        fix = "Make room or give this user leave to write there; the aliases are as they were."
        raise ConfigError(f"The aliases in {path} cannot be written.", why=f"{error.strerror}.", fix=fix) from None


def _text(aliases: Mapping[str, str]) -> str:
    """Returns the file's text. A JSON string without escaped surrogates is also a string of TOML."""
    lines = (f"{json.dumps(n, ensure_ascii=False)} = {json.dumps(m, ensure_ascii=False)}" for n, m in aliases.items())
    return "\n".join([f"[{_TABLE}]", *lines, ""])


def _damaged(path: Path, why: str) -> ConfigError:
    fix = "Mend the file, or delete it and set the aliases again."
    return ConfigError(f"The aliases in {path} are damaged.", why=f"{why}.", fix=fix)
