"""Makes a folder with a tokenizer.json for a model's folder without one.

    vocabularies/<digest>/  tokenizer.json  tokenizer_config.json, and a link to each other file of the model's folder

All code that reads a model's folder can read this one, and a vocabulary of 100,000 tokens is made once. The digest
covers the folder's path, the names, sizes and times of its files, and VERSION.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twostroke.text.templates.template_files import read_sources
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.weights.json_file import read_object
from twostroke.weights.kept_folder import make_folder

if TYPE_CHECKING:
    from twostroke.weights.gguf.vocabulary import tokenizer
    from twostroke.weights.vocabularies import rank_files, sentencepiece, tekken
    from twostroke.weights.vocabularies.tokenizer_files import TokenizerFiles
else:
    tokenizer = LazyModule("twostroke.weights.gguf.vocabulary.tokenizer")  # a folder with tokenizer.json needs none
    rank_files = LazyModule("twostroke.weights.vocabularies.rank_files")
    sentencepiece = LazyModule("twostroke.weights.vocabularies.sentencepiece")
    tekken = LazyModule("twostroke.weights.vocabularies.tekken")

UNFOLDED = "vocabularies"
"""The part of the cache folder that belongs to this module."""
VERSION = "1"
MADE, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


def with_tokenizer(folder: Path, cache: Path | None) -> Path:
    """Returns the folder itself where it has tokenizer.json, or no vocabulary at all; else a folder with links and a
    tokenizer.json.

    cache: the folder in which the new folder is kept; where cache is None or cannot be written, it lasts as long as
    this process. Raises CorruptModel, UnsupportedModel.
    """
    if (folder / MADE).is_file():
        return folder
    read = _reader(folder)
    if read is None:
        return folder
    parent = None if cache is None else cache / UNFOLDED
    return make_folder(parent, _digest(folder), MADE, lambda: _members(folder, read))


def _reader(folder: Path) -> Callable[[Path], TokenizerFiles] | None:
    if (folder / tekken.NAME).is_file():
        return tekken.read_tekken
    for path in (folder / "tiktoken.model", *sorted(folder.glob("*.tiktoken"))):
        if path.is_file():
            return lambda place: rank_files.read_rank_file(place, path.name)
    path = folder / sentencepiece.NAME
    if not path.is_file():
        return None
    with path.open("rb") as file:
        ranks = b" " in file.readline(1024)
    if ranks:
        return lambda place: rank_files.read_rank_file(place, path.name)
    return sentencepiece.read_sentencepiece


def _members(folder: Path, read: Callable[[Path], TokenizerFiles]) -> dict[str, str | Path]:
    """Returns the files of the new folder: name -> the text of a file that is written, or, for a link, the file in the
    model's folder to which it leads."""
    vocabulary = read(folder)
    own = read_object(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    config: dict[str, Any] = {**vocabulary.texts, **own}
    links = {path.name: path for path in folder.iterdir() if path.name not in (MADE, CONFIG)}
    made: dict[str, str | Path] = {MADE: tokenizer.as_json(vocabulary.members), CONFIG: tokenizer.as_json(config)}
    if vocabulary.template is not None and not read_sources(folder):
        made[TEMPLATE] = vocabulary.template
    return {**links, **made}


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(f"{VERSION} {folder}".encode(), digest_size=16)
    for path in sorted(folder.iterdir()):
        status = os.stat(path)
        digest.update(f"\0{path.name} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()
