"""Reads tekken.json: the vocabulary of Mistral's models since 2024, without the files of the `tokenizers` library.

Special tokens come first: the id of a token of text is the sum of its rank and the number of special tokens. A file
without a list of special tokens has the first twenty of 2024. Source: tekken.py of mistral-common.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.assets import chat_template
from twostroke.types.errors import CorruptModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN, parse_object, read_bytes
from twostroke.weights.vocabularies.members import added
from twostroke.weights.vocabularies.ranks import checked, members_of_ranks
from twostroke.weights.vocabularies.tokenizer_files import TokenizerFiles

NAME = "tekken.json"
MAX_BYTES = 256 << 20
BEGIN, END, UNKNOWN, PAD = "<s>", "</s>", "<unk>", "<pad>"
FIRST_SPECIAL = (
    UNKNOWN, BEGIN, END, "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", PAD, "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


VERSIONS = ("3", "7", "11", "13")


def read_tekken(folder: Path) -> TokenizerFiles:
    """Reads the vocabulary of a folder. Raises CorruptModel."""
    said = parse_object(read_bytes(folder / NAME, MAX_BYTES), NAME)
    config = said.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("pattern"), str):
        raise _corrupt("It has no pattern that splits texts.")
    num_special = _count(config, "default_num_special_tokens")
    ranks = _ranks(said.get("vocab"), _count(config, "default_vocab_size") - num_special)
    special = _special(said.get("special_tokens"), num_special)
    members = members_of_ranks(ranks, (config["pattern"],), special, first_id=num_special, begins=BEGIN)
    names = {"bos_token": BEGIN, "eos_token": END, "unk_token": UNKNOWN, "pad_token": PAD}
    known = {token["content"] for token in special}
    texts = {name: text for name, text in names.items() if text in known}
    return TokenizerFiles(members, texts, _template(config.get("version"), known))


def _template(version: Any, known: set[str]) -> str | None:
    """Returns the chat template for models of this version; None where the version is not known. See
    templates/mistral.jinja."""
    number = version[1:] if isinstance(version, str) and version.startswith("v") else ""
    if number not in VERSIONS:
        return None
    thinks = "true" if "[THINK]" in known and int(number) >= 13 else "false"
    return f"{{%- set version = {number} -%}}{{%- set thinks = {thinks} -%}}" + chat_template("mistral")


def _ranks(listed: Any, count: int) -> dict[bytes, int]:
    if not isinstance(listed, list) or not 0 < count <= len(listed):
        raise _corrupt(f"Its list has fewer than the {count:,} tokens of text that its config names.")
    try:
        found = {base64.b64decode(each["token_bytes"], validate=True): each["rank"] for each in listed[:count]}
    except (TypeError, KeyError, ValueError, binascii.Error):
        raise _corrupt("A token of its list has no rank, or bytes that are not base64.") from None
    if any(type(rank) is not int for rank in found.values()):
        raise _corrupt("A rank of its list is no whole number.")
    return checked(found, NAME)


def _special(listed: Any, count: int) -> list[dict[str, Any]]:
    """Returns all special tokens in order of their ids; an id without a text gets a text of its own."""
    texts = {index: f"<SPECIAL_{index}>" for index in range(count)}
    if listed is None:
        texts |= dict(enumerate(FIRST_SPECIAL[:count]))
        return [added(index, text, special=True) for index, text in texts.items()]
    if not isinstance(listed, list):
        raise _corrupt("Its special tokens are no list.")
    printed: set[int] = set()
    for each in listed:
        index, text = (each.get("rank"), each.get("token_str")) if isinstance(each, dict) else (None, None)
        if type(index) is not int or not 0 <= index < count or not isinstance(text, str) or not text:
            raise _corrupt(f"A special token has no text, or no id below {count:,}.")
        texts[index] = text
        if each.get("is_control") is False:
            printed.add(index)
    return [added(index, text, special=index not in printed) for index, text in texts.items()]


def _count(config: Mapping[str, Any], name: str) -> int:
    found = config.get(name)
    if type(found) is not int or found < 0:
        raise _corrupt(f"{name} of its config is no number of tokens.")
    return found


def _corrupt(why: str) -> CorruptModel:
    return CorruptModel(f"{NAME} is no usable vocabulary.", why=why, fix=DOWNLOAD_AGAIN)
