"""Reads the special tokens from the files next to tokenizer.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.text.model_files import read_object
from twostroke.types.errors import CorruptModel

NAMED = ("extra_special_tokens", "model_specific_special_tokens")
"""Members that may hold additional names, such as image_token. Other files have these names at the top, as in
transformers 4."""


class SpecialTokens(Struct, frozen=True):
    """The special tokens of a model. texts: name -> token text, as templates see them. The names are the files' members
    that end in _token, such as bos_token, and the names inside the members `extra_special_tokens` and
    `model_specific_special_tokens`. end_ids: the end tokens that the model's configuration files list.

    add_bos_token and add_eos_token are not read. The rule of tokenizer.json holds, as in transformers.
    """

    texts: dict[str, str]
    end_ids: frozenset[int]


def _text_of(value: Any) -> str | None:
    """Returns the text of a token, which is written as text or as an object with `content`; None for anything else."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _texts_in(members: dict[str, Any]) -> dict[str, str]:
    """Returns name -> text of the special tokens among the members of a JSON file: members whose names end in _token,
    and those inside the members of NAMED. A value without a text is left out."""
    named = [members[name] for name in NAMED if isinstance(members.get(name), dict)]
    own = {name: value for name, value in members.items() if name.endswith("_token")}
    pairs = [(name, _text_of(value)) for each in (*named, own) for name, value in each.items()]
    return {name: text for name, text in pairs if text}


def _ids_of(value: Any, path: Path) -> list[int]:
    if value is None:
        return []
    ids = value if isinstance(value, list) else [value]
    if any(type(token_id) is not int or token_id < 0 for token_id in ids):
        raise CorruptModel(f"{path} has an eos_token_id that is no token id: {value!r}.", fix="Correct the file.")
    return ids


def read_special_tokens(folder: Path) -> SpecialTokens:
    """Reads the special tokens of a folder; missing files count as empty. Raises CorruptModel for files of a wrong
    form."""
    config = read_object(folder / "tokenizer_config.json")
    fallback = read_object(folder / "special_tokens_map.json")
    texts = {**_texts_in(fallback), **_texts_in(config)}
    end_ids: set[int] = set()
    for file in ("generation_config.json", "config.json"):
        end_ids.update(_ids_of(read_object(folder / file).get("eos_token_id"), folder / file))
    return SpecialTokens(texts, frozenset(end_ids))


def ids_of_texts(tokens: SpecialTokens, find: Callable[[str], int | None]) -> tuple[int | None, frozenset[int]]:
    """Returns (BOS id, end ids). The end ids are the tokenizer's own eos together with those of the configuration
    files."""
    bos = find(tokens.texts["bos_token"]) if "bos_token" in tokens.texts else None
    eos = find(tokens.texts["eos_token"]) if "eos_token" in tokens.texts else None
    return bos, tokens.end_ids if eos is None else tokens.end_ids | {eos}
